"""Contend for a lock with redis-py's Lock: on one server as it is, on several
by the Redlock algorithm.

usage: contend.py NAME DIR KEY SOCKET...

What each holder does in DIR is described in test_share_clients.c.
"""

import os
import random
import sys
import time
import uuid

import redis
from redis.exceptions import LockError
from redis.lock import Lock

LEASE_S = 60
DRIFT = 0.01
RETRY_S = 0.1


class Redlock:
    """The lock of a majority, one Lock for each server."""

    def __init__(self, clients, key):
        self.locks = [Lock(c, key, timeout=LEASE_S) for c in clients]
        self.held = []

    def try_once(self):
        token = uuid.uuid4().hex
        begin = time.monotonic()
        self.held = [
            lock
            for lock in self.locks
            if lock.acquire(blocking=False, token=token)
        ]
        is_valid = time.monotonic() - begin < LEASE_S * (1 - DRIFT)
        return is_valid and len(self.held) > len(self.locks) // 2

    def acquire(self):
        while not self.try_once():
            self.release()
            time.sleep(RETRY_S * random.random())

    def release(self):
        for lock in self.held:
            lock.release()
        self.held = []


def append(path, line):
    with open(path, "a", encoding="ascii") as file:
        file.write(line + "\n")


def enter(name, directory):
    """Do what goes wrong if another holder does it at the same time."""
    inside = os.path.join(directory, "inside")
    counter = os.path.join(directory, "counter")
    try:
        os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        append(os.path.join(directory, "overlaps"), name)
    with open(counter, encoding="ascii") as file:
        number = int(file.read())
    time.sleep(0.001)
    with open(counter, "w", encoding="ascii") as file:
        file.write(str(number + 1))
    append(os.path.join(directory, "log"), name)
    os.unlink(inside)


def main(name, directory, key, *sockets):
    clients = [redis.Redis(unix_socket_path=s) for s in sockets]
    if len(clients) == 1:
        lock = Lock(clients[0], key, timeout=LEASE_S)
    else:
        lock = Redlock(clients, key)
    while not os.path.exists(os.path.join(directory, "stop")):
        lock.acquire()
        enter(name, directory)
        try:
            lock.release()
        except LockError as error:
            append(os.path.join(directory, "lost"), f"{name}: {error}")
        time.sleep(0.02 * random.random())


main(*sys.argv[1:])
