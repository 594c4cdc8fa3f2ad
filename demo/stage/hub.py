"""What is told to all listeners of the stage's /events. The last marks are kept for pages
that come later."""

import collections
import json
import queue
import threading
import time

LISTENERS_MAX = 32
BACKLOG = 256  # events that a listener has not taken yet; then it is lost
MARKS = 50
GREETING = "retry: 1000\n: what is done to the lanes\n\n"


def now_ms():
    return int(time.time() * 1000)


class Hub:
    def __init__(self):
        self.lock = threading.Lock()
        self.marks = collections.deque(maxlen=MARKS)
        self.listeners = []  # the oldest first

    def tell(self, event, data):
        text = f"event: {event}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
        with self.lock:
            if event == "mark":
                self.marks.append(text)
            for listener in list(self.listeners):
                try:
                    listener.put_nowait(text)
                except queue.Full:
                    self.end(listener)

    def mark(self, action, text, time_ms=None, item=None):
        """Something was done, at that time (default: now)."""
        mark = {"time_ms": time_ms or now_ms(), "action": action, "text": text}
        self.tell("mark", {**mark, "id": item} if item else mark)

    def end(self, listener):
        """Under lock."""
        self.listeners.remove(listener)
        if listener.full():
            listener.get_nowait()
        listener.put_nowait(None)

    def end_all(self):
        with self.lock:
            for listener in list(self.listeners):
                self.end(listener)

    def listen(self):
        """The texts for one listener, as they come. The oldest listener ends for one more
        than there may be."""
        listener = queue.Queue(BACKLOG)
        with self.lock:
            if len(self.listeners) == LISTENERS_MAX:
                self.end(self.listeners[0])
            self.listeners.append(listener)
            known = GREETING + "".join(self.marks)
        try:
            yield known
            while text := listener.get():
                yield text
        finally:
            with self.lock:
                if listener in self.listeners:
                    self.listeners.remove(listener)
