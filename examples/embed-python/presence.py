"""Hosts Rollcall's functions in Python, with everything in memory: python presence.py [FOLDER] [--bench N]
The package wasmtime maps the types of `wit-sync/` so: a record has the contract's field names (`getattr` if one has a
dash), an enum is a str, `list<u8>` is bytes, none is None. A variant is `Variant(tag, payload)`, or the bare payload if the
Python types of its cases all differ: a `result` is the value or the `Variant` of an error; a `device-event` is a Record
(beat), an int (dropped) or None (logout)."""
import argparse, functools, itertools, pathlib, timeit, zlib
from wasmtime import Engine, Store
from wasmtime.component import Component, Linker, Record, Variant
INTERFACE = "rollcall:presence-sync/{}@0.1.0"
IMPORTS = {"settings": ["current"], "archive": ["put-many", "get-many"], "restriction-check": ["check"],
           "sessions": ["touch-many", "read-many", "load-many", "commit-many", "evict-many", "due", "evictable"],
           "policy": ["relations", "settings-of", "snapshot", "since", "apply-many"]}
def record(base=None, **fields):
    made = Record()
    vars(made).update(vars(base) if base else {}, **{name.replace("_", "-"): value for name, value in fields.items()})
    return made
def pack(ids):
    return record(text="".join(ids), lengths=bytes(len(id.encode()) for id in ids))
def unpack(ids):
    text, ends = ids.text.encode(), itertools.accumulate(ids.lengths)
    return [text[end - length:end].decode() for end, length in zip(ends, ids.lengths)]
class Memory:  # What the functions import. With a database in its place, this is a service.
    def __init__(self):
        self.now = 1_800_000_000_000  # the store's clock, the only one that counts; it never goes back
        self.writes, self.sessions, self.last_seen, self.blocks, self.topic = 0, {}, {}, {("bob", "eve")}, []
    # What a reader needs, in columns: the records, and whether a deadline has passed since.
    def read_many(self, users):
        found, empty = [self.load(user) for user in unpack(users)], record(state="offline", since=None, last_seen=None, version=0)
        notes = [record(index=at, note=it.published.note) for at, it in enumerate(found) if it.published and it.published.note]
        return record(now=self.now, states=[it.published or empty for it in found], notes=notes, failures=[],
                      conditions=[self.condition(it.next, it.choice) for it in found])
    def condition(self, next, choice):
        hides = choice and choice.stance == "invisible" and (choice.until or self.now + 1) > self.now
        return record(deadline="none" if next.tag != "settle" else "ahead" if next.payload > self.now else "passed", invisible=bool(hides))
    # Sessions. One that does not exist is empty and has the revision of zeros.
    def load_many(self, users):
        return record(now=self.now, outage_grace=None, sessions=[self.load(user) for user in users])
    def load(self, user):
        return self.sessions.get(user) or record(devices=[], choice=None, published=None, next=Variant("nothing"),
                                                 revision=record(commits=0, touches=0))
    def write(self, user):
        self.writes += 1  # only rises, so no revision is reused
        session = self.sessions.setdefault(user, self.load(user))
        session.revision = record(commits=self.writes, touches=self.writes)
        return session
    # A touch changes one device and never conflicts. The answer is the state just before, in columns.
    def touch_many(self, touches):
        users, devices, versions, states, ends = unpack(touches.users), unpack(touches.devices), [], [], []
        if not len(users) == len(devices) == len(touches.events):
            return Variant("invalid", record(field="touches", rule="has columns of different lengths"))
        for index, (user, device, event) in enumerate(zip(users, devices, touches.events)):
            published = self.load(user).published or record(version=0, state="offline")
            choice = self.load(user).choice or record(stance="auto", until=None)
            versions.append(published.version)
            states.append(record(state=published.state, stance=choice.stance))
            ends += [record(index=index, at=choice.until)] if choice.until else []
            self.touch(user, device, event)
        return record(now=self.now, versions=versions, states=states, stance_ends=ends, failures=[])
    def touch(self, user, id, event):
        old = next((device for device in self.load(user).devices if device.id == id), None)
        if isinstance(event, Record):  # beat; of several in one millisecond, the longest counts
            same_ms = old and getattr(old, "beat-at") == self.now
            due = max(self.now + getattr(event, "alive-for-ms"), getattr(old, "expires-at") if same_ms else 0)
            used = self.now if event.active else old and getattr(old, "active-at")
            new = record(id=id, kind=event.kind, beat_at=self.now, active_at=used, expires_at=due)
        elif old is None:
            return
        elif event is None:  # logout: dead at once; the entry stays until a commit prunes it
            due, new = self.now, record(old, active_at=None, expires_at=0)
        else:  # dropped: lives on for the grace
            new = record(old, expires_at=(due := min(getattr(old, "expires-at"), self.now + event)))
        session = self.write(user)
        devices = [new] + [device for device in session.devices if device.id != id]
        session.devices = sorted(devices, key=lambda device: getattr(device, "beat-at"), reverse=True)[:64]
        # Due no later than the touch takes effect: the sweep finds what a crash left unpublished.
        session.next = Variant("settle", min(due, session.next.payload) if session.next.tag == "settle" else due)
    # A commit or an eviction applies only if the revision is still the one that was loaded.
    def commit_many(self, commits, apply=None):
        return [(apply or self.commit)(it) if self.load(it.user).revision == it.expected else "stale" for it in commits]
    def evict_many(self, evictions):
        return self.commit_many(evictions, lambda it: "applied" if self.sessions.pop(it.user, None) else "stale")
    def commit(self, commit):
        session, by = self.write(commit.user), getattr(commit, "prune-expired-by")
        session.devices = [device for device in session.devices if not by or getattr(device, "expires-at") > by]
        session.choice, session.next = commit.choice or session.choice, commit.next
        session.published = commit.publish or session.published
        self.topic += [f"{commit.user} is {commit.publish.state}"] if commit.publish else []  # sent to the watchers
        return "applied"
    def due(self, first, end, limit, what="settle"):
        waiting = sorted((it.next.payload, user) for user, it in self.sessions.items() if it.next.tag == what)
        return [user for at, user in waiting if at <= self.now and first <= zlib.crc32(user.encode()) % 256 < end][:limit]
    evictable = functools.partialmethod(due, what="evict")
    # Settings, archive and policy. Without `snapshot` and `since` policy is not cached: every check asks `relations`.
    def current(self):
        return record(interval_ms=30_000, tolerance_ms=15_000, idle_after_ms=300_000, grace_ms=30_000,
                      typing_ttl_ms=5_000, evict_after_ms=60_000, watch_limit=20)
    def put_many(self, entries):
        for entry in entries:
            self.last_seen[entry.user] = max(self.last_seen.get(entry.user, 0), getattr(entry, "last-seen"))
    def get_many(self, users):
        return [self.last_seen.get(user) for user in unpack(users)]
    def relations(self, viewer, subjects):
        everyone = record(presence="everyone", last_seen="everyone")
        blocked = [{(viewer, user), (user, viewer)} & self.blocks for user in unpack(subjects)]
        return [record(restricted=False, blocked=bool(pair), contact=False, privacy=everyone) for pair in blocked]
def start(function):  # Returns what calls the component's functions. In its own store: a trap ends only this one.
    store, file = Store(linker.engine), options.folder / f"{function}.wasm"
    instance = linker.instantiate(store, Component.from_file(linker.engine, str(file)))
    exports = instance.get_export_index(store, INTERFACE.format(function))
    def call(name, *args):
        func = instance.get_func(store, instance.get_export_index(store, name, exports))
        answer = func(store, *args)
        func.post_return(store)  # needed by wheels before 42
        return answer
    return call
def beat(*users):
    details, devices = [record(kind="web", active=True)] * len(users), pack(["tab"] * len(users))
    return heartbeat("beat-many", record(users=pack(users), devices=devices, details=details))[0].state
def look(viewer):
    seen = query("look-up", viewer, pack(["bob"])).states[0]
    return f"{seen.state}, last seen {(host.now - getattr(seen, 'last-seen')) // 1000} s ago" if seen else "hidden"
def step(what, answer, expected):
    print(f"{what}: {answer}")
    assert answer == expected, expected
parser, root = argparse.ArgumentParser(), pathlib.Path(__file__).resolve().parents[2]
parser.add_argument("folder", nargs="?", type=pathlib.Path, default=root / "target/components/sync")
parser.add_argument("--bench", type=int, metavar="N", help="measure N calls")
options, host, linker = parser.parse_args(), Memory(), Linker(Engine())
with linker.root() as root:
    for interface, names in IMPORTS.items():
        with root.add_instance(INTERFACE.format(interface)) as instance:
            for name in names:  # what the host does not have is `denied`
                instance.add_func(name, lambda _store, *args, name=name.replace("-", "_"):
                                  getattr(host, name, lambda *_: Variant("denied"))(*args))
host.check = functools.partial(start("restriction-check"), "check")
heartbeat, query, sweep = map(start, ["heartbeat", "query", "offline-sweep"])
step("bob's tab beats", beat("bob"), "online")
step("alice looks at bob", look("alice"), "online, last seen 0 s ago")
step("eve, blocked by bob, looks at him", look("eve"), "hidden")
host.now += 46_000
step("46 s without a beat; the sweep publishes", sweep("sweep", 0, 256, 100).published, 1)
step("alice looks at bob", look("alice"), "offline, last seen 46 s ago")
host.now += 60_000
step("60 s later; sessions moved to the archive", sweep("archive", 0, 256, 100).dropped, 1)
step("alice looks at bob", look("alice"), "offline, last seen 106 s ago")
step("published on the way", host.topic, ["bob is online", "bob is offline"])
for size in [1, 1000] if options.bench else []:
    users = [f"user {number}" for number in range(size)]
    took = timeit.timeit(lambda: beat(*users), number=options.bench) / options.bench
    print(f"{size} a call: {took / size * 1e6:.0f} µs a beat")
