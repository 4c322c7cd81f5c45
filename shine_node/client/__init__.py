"""A small client library, used by the command line, the demo and the tests."""
