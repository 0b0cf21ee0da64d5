"""Scores and continues texts with a checkpoint, from Python without another package.

    import ql

    with ql.Model("runs/ql/best") as model:
        model.loglikelihood([("The cats", " sleep"), ("The cats", " sleeps")])
        model.loglikelihood_rolling(["The cats sleep ."])
        model.generate_until([("The cats", {"until": [".", "\\n"], "max_gen_toks": 20})])

The three functions take and return what lm-evaluation-harness asks of a model, with tuples in place of its
Instance objects; share/doc/python.md registers them there. They ask qleval(1) and qlgen(1), which are
started at the first question and then answer all further ones. qlgen is started once for each pair of
`until` and `max_gen_toks`. A model must not be used by two threads at the same time.
"""

import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
import warnings


_MOST_CHOICES = 64  # of an item, whose choices are in memory at once


class Error(Exception):
    """A program was not found, or has ended; the text is its message."""


class _Program:
    """A child process that answers JSON objects with JSON objects, one a line."""

    def __init__(self, arguments):
        self._messages = tempfile.TemporaryFile()
        # Ctrl-C, which the terminal sends to the session, must not end a program that waits for questions.
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._messages, start_new_session=True)

    def ask(self, items, count):
        """Returns `count` answers to the items."""
        lines = "".join(json.dumps(item) + "\n" for item in items).encode()
        # The program answers while it reads. If it had to wait for a reader, the writer would wait, too.
        writer = threading.Thread(target=self._write, args=(lines,), daemon=True)
        writer.start()
        answers = []
        while len(answers) < count:
            line = self._process.stdout.readline()
            if not line.endswith(b"\n"):  # the program has ended, perhaps in the middle of a row
                raise Error(self._failure())
            answers.append(json.loads(line))
        writer.join()
        return answers

    def close(self):
        """Ends the process, which has nothing more to answer."""
        try:
            self._process.stdin.close()
        except OSError:
            pass  # it has ended before
        self._process.stdout.close()
        self._process.wait()
        self._messages.close()

    def kill(self):
        """Ends the process in the middle of its answers."""
        self._process.kill()
        self.close()

    def _write(self, lines):
        try:
            self._process.stdin.write(lines)
            self._process.stdin.flush()
        except (OSError, ValueError):
            pass  # the process has ended, and so has its output

    def _failure(self):
        code = self._process.wait()
        self._messages.seek(0)
        message = self._messages.read().decode(errors="replace").strip()
        return message or f"{os.path.basename(self._process.args[0])} has ended with exit code {code}"


class Model:
    """A checkpoint with its vocabulary.

    `bin` is the folder of the programs; by default that of the environment variable QL_BIN, or else they
    are found in PATH. `options` are for both programs, such as ["--memory", "16", "--threads", "2"].
    """

    def __init__(self, checkpoint, bin=None, options=()):
        self._common = ["-q", "-m", os.fspath(checkpoint), *options]
        self._bin = bin or os.environ.get("QL_BIN")
        self._programs = {}  # by their arguments
        self._has_warned = False

    def loglikelihood(self, requests):
        """Returns (log probability, is greedy) for each (context, continuation).

        The log probability is the natural logarithm of the probability of all tokens of the continuation.
        It is greedy if each of its tokens is the likeliest one. An empty context stands for the token that
        ends lines. qleval(1) describes which tokens belong to the continuation.
        """
        requests = [tuple(request) for request in requests]
        # A context that several requests share is read once.
        items = []
        for context, continuation in requests:
            if items and items[-1]["context"] == context and len(items[-1]["choices"]) < _MOST_CHOICES:
                items[-1]["choices"].append(continuation)
            else:
                items.append({"context": context, "choices": [continuation]})
        return self._score(items, len(requests))

    def loglikelihood_rolling(self, texts):
        """Returns the log probability of each text, of any length, after the token that ends lines."""
        items = [{"context": "", "choices": [text]} for text in texts]
        return [log_probability for log_probability, _ in self._score(items, len(items))]

    def generate_until(self, requests):
        """Returns the likeliest continuation, token by token, for each (context, settings).

        The settings are a dictionary. A continuation ends before the first of the strings "until", or after
        "max_gen_toks" tokens (256 if there is no such key). Raises ValueError for sampling ("do_sample").
        """
        texts = []
        for (until, tokens), same in itertools.groupby(requests, lambda request: _ends(request[1])):
            # qlgen takes a backslash as the beginning of an escape.
            arguments = [f"--until={string}".replace("\\", "\\x5C").encode() for string in until]
            arguments = ("qlgen", "--items", "-", "--temperature", "0", "--tokens", str(tokens), *arguments)
            items = [{"context": request[0], "choices": [""]} for request in same]
            for answer in self._ask(arguments, items, len(items)):
                # In a vocabulary of words, qlgen finds strings of complete words only.
                found = [answer["text"].find(string) for string in until if string in answer["text"]]
                texts.append(answer["text"][:min(found, default=None)])
        return texts

    def close(self):
        """Ends the programs. The next question would start them again."""
        while self._programs:
            self._programs.popitem()[1].close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _score(self, items, count):
        arguments = ("qleval", "--items", "-", "--per", "choice", "--format", "json")
        answers = self._ask(arguments, items, count)
        if not self._has_warned and any(answer["unknown_tokens"] for answer in answers):
            self._has_warned = True
            warnings.warn("a continuation has words or characters that the vocabulary lacks; each is scored as "
                          "<unk>, so continuations that differ only in these are equally likely", stacklevel=3)
        return [(float(answer["log_probability"]), answer["greedy"] == 1) for answer in answers]

    def _ask(self, arguments, items, count):
        if not items:
            return []
        if arguments not in self._programs:
            name = arguments[0]
            path = shutil.which(name, path=self._bin)
            if path is None:
                raise Error(f"{name} is not in {self._bin or 'PATH'}; give bin=FOLDER, or set QL_BIN")
            self._programs[arguments] = _Program([path, *self._common, *arguments[1:]])
        try:
            return self._programs[arguments].ask(items, count)
        except BaseException:
            # Answers to this question must not be taken for those to the next one.
            self._programs.pop(arguments).kill()
            raise


def _ends(settings):
    if settings.get("do_sample"):
        raise ValueError("do_sample: continuations are the likeliest ones, not samples; use qlgen for samples")
    until = settings.get("until") or []
    until = [until] if isinstance(until, str) else until
    return tuple(filter(_may_occur, until)), settings.get("max_gen_toks", 256)


def _may_occur(string):
    """Returns whether a text of tokens may have the string: NUL and lone surrogates are in no argument."""
    return string != "" and "\0" not in string and string.encode(errors="ignore").decode() == string
