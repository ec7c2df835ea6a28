# Runs a tool module as its own program: its names are those of `__main__`, and its siblings can be imported.
# `python3 -I -c` leaves out where it starts and what the user installed.
def _run(path):
    import io, os, sys

    sys.argv[:] = [path]
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    names = sys.modules["__main__"].__dict__
    del names["_run"]
    names["__file__"] = path
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    exec(code, names)


_run(__import__("sys").argv[1])
