// Looks up one user: everything stored about them, polled every second while it is shown.

import { useEffect, useState, type FormEvent } from "react";

import type { Access } from "../api/credentials";
import { request, errorText } from "../api/request";
import type { Device, Person } from "../api/types";
import { Dot } from "../ui/state-dot";
import { useNow } from "../ui/use-now";
import { ago, count, countdown, life, moment, NOTHING, plural, UNKNOWN } from "../format";

const INTERVAL_MS = 1_000;

interface Found {
  person: Person | null;
  received_at: number;
  failure: string | null;
}

/** The form and the result. `user` is empty before the first lookup. */
export function UserLookup(props: { access: Access; user: string; onPick: (user: string) => void }) {
  const { access, user, onPick } = props;
  const found = usePerson(access, user);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    onPick(String(new FormData(event.currentTarget).get("user")).trim());
  };
  return (
    <section className="panel" aria-labelledby="find-title">
      <h3 id="find-title">User lookup</h3>
      <p className="hint">Devices, published record, choice and watchers of one user</p>
      <form className="inline" onSubmit={submit} key={user}>
        <label>
          <span className="visually-hidden">User</span>
          <input name="user" defaultValue={user} placeholder="bob" required maxLength={128} autoComplete="off" />
        </label>
        <button type="submit">Look up</button>
      </form>
      {found?.failure && (
        <p className="problem" role="alert">
          {found.failure}
        </p>
      )}
      {found?.person && <Profile person={found.person} offset={found.person.now - found.received_at} />}
    </section>
  );
}

/** Polls the user. */
function usePerson(access: Access, user: string): Found | null {
  const [found, setFound] = useState<Found | null>(null);
  useEffect(() => {
    setFound(null);
    if (!user) return undefined;
    let over = false;
    let timer: ReturnType<typeof setTimeout>;
    const poll = async () => {
      try {
        const person = await request<Person>(access, "GET", `/v1/people/${encodeURIComponent(user)}`);
        if (!over) setFound({ person, received_at: Date.now(), failure: null });
      } catch (failure) {
        if (!over) setFound((before) => ({ person: null, received_at: 0, ...before, failure: errorText(failure) }));
      }
      if (!over) timer = setTimeout(poll, INTERVAL_MS);
    };
    void poll();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [access, user]);
  return found;
}

function Profile({ person, offset }: { person: Person; offset: number }) {
  const now = useNow() + offset;
  const { record, choice, deadline, watchers, privacy } = person;
  const onAllHosts = watchers.all_hosts === null ? "" : `, ${count(watchers.all_hosts)} on all hosts`;
  return (
    <div className="profile">
      <p className="user">
        <Dot state={person.state} /> <strong>{person.user}</strong> is <span data-state>{person.state}</span>
        {person.restricted && <span className="tag">restricted</span>}
      </p>
      <dl className="facts">
        <Fact name="Published">{published(record, now)}</Fact>
        <Fact name="Last seen">{seen(record?.last_seen ?? person.archived_last_seen, now)}</Fact>
        <Fact name="Choice">{choice ? `${choice.choice}${until(choice.until, now)}` : "none (automatic)"}</Fact>
        <Fact name="Next deadline">
          {deadline === null ? "none" : `${deadline > now ? "in " : ""}${countdown(deadline - now)}`}
        </Fact>
        <Fact name="Watchers">{`${count(watchers.this_host)} on this host${onAllHosts}`}</Fact>
        <Fact name="Visible to">
          {privacy ? `state: ${privacy.presence}; last seen: ${privacy.last_seen}` : UNKNOWN}
        </Fact>
        <Fact name="Contacts and blocks">{lists(person)}</Fact>
        <Fact name="Archived last seen">{seen(person.archived_last_seen, now)}</Fact>
        <Fact name="Version">{record ? String(record.version) : NOTHING}</Fact>
      </dl>
      <Devices devices={person.devices} now={now} />
    </div>
  );
}

function Devices({ devices, now }: { devices: readonly Device[]; now: number }) {
  if (devices.length === 0) return <p className="empty">No live device.</p>;
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Devices">
      <table className="numbers">
        <thead>
          <tr>
            <th scope="col">device</th>
            <th scope="col">kind</th>
            <th scope="col">last beat</th>
            <th scope="col">last active</th>
            <th scope="col">expires in</th>
          </tr>
        </thead>
        <tbody>
          {devices.map((device) => (
            <tr key={device.device}>
              <th scope="row">{device.device}</th>
              <td>{device.kind ?? NOTHING}</td>
              <td>{ago(device.beat_at, now)}</td>
              <td>{ago(device.active_at, now)}</td>
              <td>{life(device.expires_at, now)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Fact({ name, children }: { name: string; children: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** The published record. `since` is null for a user who set a note and was never online. */
function published(record: Person["record"], now: number): string {
  if (!record) return "nothing";
  const since = record.since === null ? "" : ` since ${moment(record.since, now)}`;
  const note = [record.note?.emoji, record.note?.text].filter(Boolean).join(" ");
  return `${record.state}${since}${note && `, “${note}”`}`;
}

/** `time` is null for never, or if the archive did not respond. */
function seen(time: number | null, now: number): string {
  return time === null ? UNKNOWN : ago(time, now);
}

function lists({ contacts, blocks }: Person): string {
  if (contacts === null || blocks === null) return UNKNOWN;
  return `${plural(contacts, "contact")}, ${plural(blocks, "block")}`;
}

function until(time: number | null, now: number): string {
  return time === null ? "" : ` for another ${countdown(time - now)}`;
}
