"""Checks greet.py beside it. Says what is wrong, or that all is well."""
import greet

for said, expected in [
    (greet.greeting("Ada"), "Hello, Ada!"),
    (greet.farewell("Ada"), "Goodbye, Ada."),
]:
    if said != expected:
        raise SystemExit(f"wrong: {said!r} is not {expected!r}")
print("all is well")
