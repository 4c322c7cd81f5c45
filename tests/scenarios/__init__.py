"""Stories between named logins: real nodes on real sockets with real stores, on one clock that the story moves."""
