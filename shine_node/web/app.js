// The entry: one core, one user interface. Everything else is below core/ and ui/.
import { Chat } from "./core/chat.js";
import { start } from "./ui/start.js";
import { keepOffline } from "./ui/offline.js";

keepOffline();
start(new Chat({}), document.getElementById("app"));
