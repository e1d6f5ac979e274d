// Hosts Rollcall's functions in Node, with everything in memory: node presence.mjs [FOLDER] [--bench N]
//
// jco maps the types of `wit-sync/` so: names are camelCase, a record is an object, an enum a string, a u64 a BigInt,
// `list<u8>` a Uint8Array, none is undefined, a variant is { tag, val }. The `result` of a function is the value returned
// or the error thrown; a `result` within a list is { tag: 'ok', val } or { tag: 'err', val }.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { transpileBytes as transpile } from '@bytecodealliance/jco-transpile';
const ok = (val) => ({ tag: 'ok', val });
const denied = () => { throw { tag: 'denied' }; };
const pack = (ids) => ({ text: ids.join(''), lengths: Uint8Array.from(ids, (id) => Buffer.byteLength(id)) });
const unpack = ({ text, lengths }) => {
  let bytes = Buffer.from(text), end = 0;
  return Array.from(lengths, (length) => bytes.toString('utf8', end, (end += length)));
};
const max = (a, b) => (a > b ? a : b), min = (a, b) => (a < b ? a : b); // of BigInts
// What the functions import. With a database in its place, this is a service.
let now = 1_800_000_000_000n; // the store's clock, the only one that counts; it never goes back
let writes = 0n;
const stored = new Map(), lastSeen = new Map(), blocks = new Map([['bob', new Set(['eve'])]]), topic = [];
// A session that does not exist is empty and has the revision of zeros.
const empty = { devices: [], next: { tag: 'nothing' }, revision: { commits: 0n, touches: 0n } };
const load = (user) => stored.get(user) ?? empty;
const write = (user) => {
  writes += 1n; // only rises, so no revision is reused
  stored.set(user, { ...load(user), revision: { commits: writes, touches: writes } });
  return stored.get(user);
};
// A touch changes one device and never conflicts.
const touch = (user, id, { tag, val }) => {
  const old = load(user).devices.find((device) => device.id === id);
  let due = now, device;
  if (tag === 'beat') { // of several in one millisecond, the longest counts
    due = max(now + BigInt(val.aliveForMs), old?.beatAt === now ? old.expiresAt : 0n);
    device = { id, kind: val.kind, beatAt: now, activeAt: val.active ? now : old?.activeAt, expiresAt: due };
  } else if (!old) return;
  else if (tag === 'logout') { // dead at once; the entry stays until a commit prunes it
    device = { ...old, activeAt: undefined, expiresAt: 0n };
  } else { // dropped: lives on for the grace
    due = min(old.expiresAt, now + BigInt(val));
    device = { ...old, expiresAt: due };
  }
  const session = write(user);
  const devices = [device, ...session.devices.filter((other) => other.id !== id)];
  session.devices = devices.sort((a, b) => Number(b.beatAt - a.beatAt)).slice(0, 64);
  // Due no later than the touch takes effect: the sweep finds what a crash left unpublished.
  session.next = { tag: 'settle', val: session.next.tag === 'settle' ? min(due, session.next.val) : due };
};
const commit = ({ user, publish, choice, pruneExpiredBy: by, next }) => {
  const session = write(user);
  session.devices = session.devices.filter((device) => by === 0n || device.expiresAt > by);
  Object.assign(session, { next, choice: choice ?? session.choice, published: publish ?? session.published });
  if (publish) topic.push(`${user} is ${publish.state}`); // a host sends it to the user's watchers
};
// A commit or an eviction applies only if the revision is still the one that was loaded.
const compareAndSwap = (apply) => (items) => items.map((item) => {
  const { commits, touches } = load(item.user).revision;
  if (commits !== item.expected.commits || touches !== item.expected.touches) return ok('stale');
  apply(item);
  return ok('applied');
});
const shard = (user) => [...user].reduce((hash, letter) => (hash * 31 + letter.codePointAt(0)) % 256, 7);
const waiting = (what) => (first, end, limit) => [...stored]
  .filter(([user, { next }]) => next.tag === what && next.val <= now && first <= shard(user) && shard(user) < end)
  .sort(([, a], [, b]) => Number(a.next.val - b.next.val)).slice(0, limit).map(([user]) => user);
const imports = {
  'rollcall:presence-sync/settings': { current: () => ({ intervalMs: 30_000, toleranceMs: 15_000, graceMs: 30_000,
    idleAfterMs: 300_000, typingTtlMs: 5_000, evictAfterMs: 60_000, watchLimit: 20 }) },
  'rollcall:presence-sync/sessions': {
    touchMany({ users, devices, events }) { // answers with the state just before each touch, in columns
      [users, devices] = [unpack(users), unpack(devices)];
      if (users.length !== events.length || devices.length !== events.length)
        throw { tag: 'invalid', val: { field: 'touches', rule: 'has columns of different lengths' } };
      const before = { now, versions: [], states: [], stanceEnds: [], failures: [] };
      events.forEach((event, index) => {
        const { published, choice } = load(users[index]);
        before.versions.push(published?.version ?? 0n);
        before.states.push({ state: published?.state ?? 'offline', stance: choice?.stance ?? 'auto' });
        if (choice?.until) before.stanceEnds.push({ index, at: choice.until });
        touch(users[index], devices[index], event);
      });
      return before;
    },
    readMany(users) { // what a reader needs, in columns: the records, and whether a deadline has passed since
      const found = unpack(users).map(load), nothing = { state: 'offline', version: 0n };
      const hides = (choice) => choice?.stance === 'invisible' && (choice.until === undefined || choice.until > now);
      const notes = found.flatMap(({ published }, index) => (published?.note ? [{ index, note: published.note }] : []));
      return { now, notes, failures: [], states: found.map(({ published }) => published ?? nothing),
        conditions: found.map(({ next, choice }) => ({ invisible: hides(choice),
          deadline: next.tag !== 'settle' ? 'none' : next.val > now ? 'ahead' : 'passed' })) };
    },
    loadMany: (users) => ({ now, sessions: users.map((user) => ok(load(user))) }),
    commitMany: compareAndSwap(commit),
    evictMany: compareAndSwap(({ user }) => stored.delete(user)),
    due: waiting('settle'),
    evictable: waiting('evict'),
  },
  'rollcall:presence-sync/archive': {
    putMany: (all) => all.forEach((it) => lastSeen.set(it.user, max(it.lastSeen, lastSeen.get(it.user) ?? 0n))),
    getMany: (users) => unpack(users).map((user) => lastSeen.get(user)),
  },
  'rollcall:presence-sync/policy': { // without `snapshot` and `since` nothing is cached: each check asks `relations`
    relations: (viewer, subjects) => unpack(subjects).map((user) => ({ restricted: false, contact: false,
      blocked: Boolean(blocks.get(viewer)?.has(user) || blocks.get(user)?.has(viewer)),
      privacy: { presence: 'everyone', lastSeen: 'everyone' } })),
    settingsOf: denied, snapshot: denied, since: denied, applyMany: denied,
  },
};
const { values, positionals } = parseArgs({ allowPositionals: true, options: { bench: { type: 'string' } } });
const folder = positionals[0] ?? fileURLToPath(new URL('../../target/components/sync', import.meta.url));
// Transpiles a component to JavaScript and instantiates it. A build would do the first part once.
const start = async (name) => {
  const { files } = await transpile(readFileSync(`${folder}/${name}.wasm`), { name, instantiation: 'sync' });
  const build = mkdtempSync(`${tmpdir()}/rollcall-`);
  writeFileSync(`${build}/${name}.mjs`, files[`${name}.js`]);
  const { instantiate } = await import(pathToFileURL(`${build}/${name}.mjs`));
  rmSync(build, { recursive: true });
  return instantiate((file) => new WebAssembly.Module(files[file]), imports);
};
imports['rollcall:presence-sync/restriction-check'] = (await start('restriction-check')).restrictionCheck;
const { heartbeat } = await start('heartbeat'), { query } = await start('query');
const { offlineSweep } = await start('offline-sweep');
const beat = (...users) => heartbeat.beatMany({ users: pack(users), devices: pack(users.map(() => 'tab')),
  details: users.map(() => ({ kind: 'web', active: true })) })[0].val.state;
const look = (viewer) => {
  const [seen] = query.lookUp(viewer, pack(['bob'])).states;
  return seen ? `${seen.state}, last seen ${(now - seen.lastSeen) / 1000n} s ago` : 'hidden';
};
const step = (what, answer, expected) => {
  console.log(`${what}:`, answer);
  assert.deepEqual(answer, expected);
};
step("bob's tab beats", beat('bob'), 'online');
step('alice looks at bob', look('alice'), 'online, last seen 0 s ago');
step('eve, blocked by bob, looks at him', look('eve'), 'hidden');
now += 46_000n;
step('46 s without a beat; the sweep publishes', offlineSweep.sweep(0, 256, 100).published, 1);
step('alice looks at bob', look('alice'), 'offline, last seen 46 s ago');
now += 60_000n;
step('60 s later; sessions moved to the archive', offlineSweep.archive(0, 256, 100).dropped, 1);
step('alice looks at bob', look('alice'), 'offline, last seen 106 s ago');
step('published on the way', topic, ['bob is online', 'bob is offline']);
for (const size of values.bench ? [1, 1000] : []) {
  const users = Array.from({ length: size }, (_, index) => `user ${index}`), began = performance.now();
  for (let call = 0; call < values.bench; call += 1) beat(...users);
  console.log(`${size} a call: ${((performance.now() - began) / values.bench / size * 1000).toFixed(1)} µs a beat`);
}
