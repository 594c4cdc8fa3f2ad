"""Options of a script, by a table: a file of rows, NAME.def, which demo/run reads, too, so
that wrong options are refused before anything is built. See cli.h for the kinds."""

import argparse
import os
import re

ROW = re.compile(r'([A-Z]+)\("([a-z-]+)", [a-z_.]+(?:, "?([^")]+)"?)?\)')


def within(kind, pattern, least, most):
    """A function that turns a text into a number, or refuses it."""
    def convert(text):
        if not re.fullmatch(pattern, text) or not kind(least) <= kind(text) <= kind(most):
            raise argparse.ArgumentTypeError(f"must be a number from {least} to {most}")
        return kind(text)
    return convert


def some_of(words):
    def convert(text):
        for word in text.split(","):
            if word not in words:
                raise argparse.ArgumentTypeError(f"does not know '{word}', only "
                                                 + ", ".join(words))
        return [word for word in words if word in text.split(",")]
    return convert


def uri_of(name):
    def convert(text):
        if not re.match({"redis": r"redis(\+sentinel|\+cluster)?://.|unix:/.", "mysql": r"mysql://.*/."}[name], text):
            raise argparse.ArgumentTypeError(f"'{text}' is no URI of {name}")
        return text
    return convert


def folder(text):
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"{text} is not a directory")
    return text


def output(text):
    """Opened early, so that no work is done in vain."""
    try:
        return open(text, "w", encoding="utf-8")
    except OSError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def converter(kind, name, limits):
    if kind == "NUMBER":
        return within(int, r"[0-9]+", *limits.split(", "))
    if kind == "REAL":
        return within(float, r"[0-9]+\.?[0-9]*|\.[0-9]+", *limits.split(", "))
    if kind == "LIST":
        return some_of(limits.split(","))
    return {"URI": uri_of(name), "FOLDER": folder, "OUTPUT": output, "TEXT": str}[kind]


class ShowHelp(argparse.Action):
    def __call__(self, parser, *_):
        print(parser.epilog, end="")
        parser.exit(0)


def parse(help_text, table, defaults, arguments):
    """Returns the options by name, with '_' for '-'; exits with 2 for a wrong one. A list
    that is not given has all its words."""
    usage = help_text.split("\n", 1)[0][len("usage: "):]
    parser = argparse.ArgumentParser(prog=usage.split()[0], usage=usage, epilog=help_text,
                                     add_help=False, allow_abbrev=False)
    parser.add_argument("--help", action=ShowHelp, nargs=0)
    with open(table, encoding="ascii") as rows:
        for kind, name, limits in map(re.Match.groups, filter(None, map(ROW.match, rows))):
            default = limits.split(",") if kind == "LIST" else defaults.get(name)
            parser.add_argument("--" + name, type=converter(kind, name, limits),
                                default=default, required=kind == "URI")
    return parser.parse_args(arguments)
