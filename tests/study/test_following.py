"""Following a job: a silent job is waited for, a cluster that is gone is not."""

import asyncio
import base64
import threading

import pytest
from aiohttp import WSMsgType, web

from fedpns_ray.errors import LostError
from fedpns_ray.runtime.ray_private import job_client
from fedpns_ray.study import submission
from fedpns_ray.study.submission import follow, unpack

DETAILS = {"type": "SUBMISSION", "entrypoint": "x", "submission_id": "j", "driver_exit_code": 0}


class Dashboard:
    """A dashboard whose job says a word, then nothing; after `answers` questions it does not answer any more."""

    def __init__(self, answers, end):
        self._answers, self._end = answers, end
        self.asked = 0

    async def version(self, request):
        import ray

        return web.json_response({"version": "4", "ray_version": ray.__version__, "ray_commit": "", "session_name": ""})

    async def info(self, request):
        self.asked += 1
        if self.asked > self._answers and not self._end:
            await asyncio.sleep(60)
        status = "SUCCEEDED" if self.asked > self._answers else "RUNNING"
        return web.json_response(DETAILS | {"status": status})

    async def log(self, request):
        if self.asked > self._answers and not self._end:
            await asyncio.sleep(60)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str("a word\n")
        async for message in socket:
            assert message.type != WSMsgType.ERROR
        return socket

    def start(self, loop, ready):
        asyncio.set_event_loop(loop)
        app = web.Application()
        app.router.add_get("/api/version", self.version)
        app.router.add_get("/api/jobs/j", self.info)
        app.router.add_get("/api/jobs/j/logs/tail", self.log)
        runner = web.AppRunner(app)
        loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        loop.run_until_complete(site.start())
        self.port = site._server.sockets[0].getsockname()[1]
        ready.set()
        loop.run_forever()


@pytest.mark.parametrize("end", [True, False], ids=["the job ends", "the cluster freezes"])
def test_a_silent_log(monkeypatch, end):
    monkeypatch.setattr(submission, "PATIENCE", 0.5)
    dashboard, loop, ready = Dashboard(3, end), asyncio.new_event_loop(), threading.Event()
    threading.Thread(target=dashboard.start, args=(loop, ready), daemon=True).start()
    assert ready.wait(30)
    client, said = job_client(f"http://127.0.0.1:{dashboard.port}", {}, within=2.0), []
    ended = []

    def go():
        try:
            ended.append(follow(client, "j", said.append))
        except LostError as error:
            ended.append(str(error))

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    thread.join(60)
    loop.call_soon_threadsafe(loop.stop)
    assert said == ["a word\n"] and dashboard.asked > 3, ended
    assert ended == [0] if end else "no answer from the cluster" in ended[0]


def test_results_that_are_no_archive_are_one_line():
    for packed in ("x", base64.b64encode(b"no archive").decode()):
        with pytest.raises(LostError, match="what arrived is no archive"):
            unpack(packed)
