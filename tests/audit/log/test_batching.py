import threading

import pytest

from stoilo.audit.log.batching import AppendQueue, AppendRequest
from stoilo.core.errors import InternalError


def request(count: int = 1) -> AppendRequest:
    return AppendRequest([b"x"] * count, [b"h"] * count, [None] * count)


def taken(queue: AppendQueue) -> list[AppendRequest]:
    batch = queue.next_batch()
    return batch.requests if batch else []


def test_requests_come_in_order_and_within_the_batch_size() -> None:
    queue = AppendQueue(batch_leaves=5, gather_s=0)
    requests = [request(2), request(3), request(1), request(9), request(1)]
    assert all(queue.put(one) for one in requests)
    batches = [taken(queue) for _ in range(4)]
    assert [[len(one.leaves) for one in batch] for batch in batches] == [
        [2, 3], [1], [9], [1]
    ]  # fmt: skip


def test_closed_queue_hands_out_the_rest_and_then_nothing() -> None:
    queue = AppendQueue(batch_leaves=5, gather_s=0)
    queue.put(request())
    queue.close()
    assert not queue.put(request())
    assert len(taken(queue)) == 1
    assert queue.next_batch() is None


def test_lone_request_is_not_held_back() -> None:
    queue = AppendQueue(batch_leaves=5, gather_s=30)
    for _ in range(3):
        queue.put(request())
        assert len(taken(queue)) == 1


def test_batch_waits_for_as_many_as_the_last_one_had() -> None:
    queue = AppendQueue(batch_leaves=100, gather_s=30)
    for _ in range(3):
        queue.put(request())
    assert len(taken(queue)) == 3
    queue.put(request())
    late = threading.Timer(0.05, lambda: [queue.put(request()) for _ in range(2)])
    late.start()
    assert len(taken(queue)) == 3
    late.join()


def test_batch_does_not_wait_longer_than_it_may() -> None:
    queue = AppendQueue(batch_leaves=100, gather_s=0.02)
    for _ in range(3):
        queue.put(request())
    queue.next_batch()
    queue.put(request())
    assert len(taken(queue)) == 1  # one that waited for more would not come back


def test_caller_gets_the_writer_s_answer_or_error() -> None:
    queue, good, bad = AppendQueue(batch_leaves=5, gather_s=0), request(), request()
    assert queue.put(good)
    assert queue.put(bad)
    good.indices = [7]
    bad.error = InternalError("STO-R030", "full")
    batch = queue.next_batch()
    assert batch is not None
    batch.finish()
    assert good.result() == [7]
    with pytest.raises(InternalError, match="STO-R030"):
        bad.result()


def test_every_caller_of_a_batch_is_released_by_one_finish() -> None:
    queue, answers = AppendQueue(batch_leaves=100, gather_s=0), []
    requests = [request() for _ in range(20)]
    for number, one in enumerate(requests):
        one.indices = [number]
        assert queue.put(one)
    threads = [
        threading.Thread(target=lambda one=one: answers.extend(one.result()))
        for one in requests
    ]
    for thread in threads:
        thread.start()
    assert answers == []
    batch = queue.next_batch()
    assert batch is not None
    batch.finish()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(20))
