"""Greets people."""


def greeting(name):
    return "Hello " + name + "!"


def farewell(name):
    return "Goodbye, " + name + "."
