"""Threads of the server share its news; none of them may disturb another."""

import logging
import sys
import threading

import pytest

from fedpns_ray.records.record import Record
from fedpns_ray.runtime.news import KEPT, Newsroom

logger = logging.getLogger("fedpns_ray.runtime.actor_group")


@pytest.fixture
def busy_threads():
    """Threads take turns after every few instructions, so that a race which exists is met."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_reading_while_the_run_writes(busy_threads):
    newsroom, rounds, errors, heard = Newsroom(), 200_000, [], []
    done, reading = threading.Event(), threading.Barrier(4)

    def read():
        reading.wait()
        try:
            while not done.is_set():
                heard.extend(newsroom.since(0).messages)
        except RuntimeError as error:  # deque mutated during iteration
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    reading.wait()
    with newsroom:
        for t in range(1, rounds + 1):
            newsroom.add(Record(round=t))
            if t % 100 == 0:
                logger.info("message %d", t)
    logger.warning("after the run")
    done.set()
    for reader in readers:
        reader.join()
    heard.extend(newsroom.since(0).messages)
    assert not errors
    assert sorted(heard) == sorted((logging.INFO, f"message {t}") for t in range(100, rounds + 1, 100))  # each once
    latest = newsroom.since(rounds - 10).records
    assert [record["round"] for record in latest] == list(range(rounds - 9, rounds + 1))
    assert len(newsroom.since(0).records) == KEPT
