"""A client in Python, with Debian's python3-websockets: watches, types, beats, resumes and leaves.

Run as: watcher.py HERE THERE, the addresses of two hosts, or the same one twice. Exits with 0 if everything works.
"""

import asyncio
import json
import sys

import websockets

DEADLINE_S = 30


async def ask(socket, **message):
    """Sends a message. Returns its reply, and the events received before it."""
    ask.reference += 1
    await socket.send(json.dumps({**message, "ref": ask.reference}))
    before = []
    while True:
        event = json.loads(await socket.recv())
        if event.get("ref") == ask.reference:
            return event, before
        before.append(event)


ask.reference = 0


async def until(socket, **wanted):
    """Returns the next event with these fields."""
    while True:
        event = json.loads(await socket.recv())
        if all(event.get(field) == value for field, value in wanted.items()):
            return event


async def main(here, there):
    async with websockets.connect(f"ws://{here}/v1/socket?as=alice&device=laptop") as alice:
        snapshot, _ = await ask(alice, op="watch", users=["bob"], conversations=["c1"])
        assert snapshot["event"] == "snapshot" and snapshot["resumed"] is False, snapshot
        assert [presence["state"] for presence in snapshot["presences"]] == ["offline"], snapshot

        async with websockets.connect(f"ws://{there}/v1/socket?as=bob&device=phone&kind=mobile") as bob:
            online = await until(alice, event="presence", user="bob", state="online")
            await ask(bob, op="watch", users=["alice"])
            done, _ = await ask(bob, op="beat", active=True)
            assert done["event"] == "done", done
            await ask(bob, op="typing", conversation="c1", typing=True)
            typing = await until(alice, event="typing", conversation="c1", user="bob", typing=True)
            assert typing["until"] > 0, typing
            await until(alice, event="typing", conversation="c1", user="bob", typing=False)
            error, _ = await ask(bob, op="dance")
            assert error["event"] == "error" and error["status"] == 400 and error["field"] == "op", error
            pong = await bob.ping()
            await pong
            await bob.send(json.dumps({"op": "leave"}))
            await bob.wait_closed()
            assert bob.close_code == 1000, (bob.close_code, bob.close_reason)
        offline = await until(alice, event="presence", user="bob", state="offline")
        assert offline["version"] > online["version"], (online, offline)

    async with websockets.connect(f"ws://{there}/v1/socket?as=alice&device=laptop") as alice:
        resumed, _ = await ask(alice, op="watch", users=["bob"], since=offline["id"])
        assert resumed["resumed"] is True and resumed["presences"] == [], resumed
        resumed, _ = await ask(alice, op="unwatch", users=["bob"])
        resumed, _ = await ask(alice, op="watch", users=["bob"], since=str(online["version"]))
        assert [presence["state"] for presence in resumed["presences"]] == ["offline"], resumed


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), DEADLINE_S))
