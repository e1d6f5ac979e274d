// One card per watched user: state, note, typing and actions.

import { useState, type FormEvent } from "react";

import type { Presence } from "@rollcall/client";

import { Dot } from "../ui/state-dot";
import { useNow } from "../ui/use-now";
import { ago, span } from "../format";
import { STATE_TEXT, shownState } from "./presence-text";
import type { OwnSettings } from "./own-settings";

interface Props {
  users: readonly string[];
  presences: ReadonlyMap<string, Presence>;
  stale: ReadonlySet<string>;
  typists: readonly string[];
  ownSettings: OwnSettings;
  /** The host's clock minus this machine's. */
  offset_ms: number;
  onAdd: (user: string) => void;
  onRemove: (user: string) => void;
  /** Opens a window as another user; null where the host requires a token. */
  onOpen: ((user: string) => void) | null;
}

/** All cards, and a form to watch another user. */
export function UserCards(props: Props) {
  const { users, onAdd } = props;
  const add = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    onAdd(String(new FormData(event.currentTarget).get("user")).trim());
    event.currentTarget.reset();
  };
  return (
    <section aria-labelledby="watched-title">
      <h2 id="watched-title">Watched users</h2>
      <ul className="cards">
        {users.map((user) => (
          <Card key={user} user={user} {...props} />
        ))}
        <li className="card add">
          <form onSubmit={add}>
            <label>
              Watch another user
              <input name="user" placeholder="a name" required maxLength={128} autoComplete="off" />
            </label>
            <button type="submit">Watch</button>
          </form>
        </li>
      </ul>
    </section>
  );
}

function Card(props: Props & { user: string }) {
  const { user, presences, stale, typists, ownSettings, offset_ms, onOpen, onRemove } = props;
  const presence = presences.get(user);
  const state = shownState(presence);
  return (
    <li className={stale.has(user) ? "card panel stale" : "card panel"} data-user={user}>
      <p className="user">
        <span className="avatar" aria-hidden="true">
          {user.slice(0, 1).toUpperCase()}
          <Dot state={state} />
        </span>
        <span className="who">
          <strong>{user}</strong>
          <span className="state" data-state={state}>
            {STATE_TEXT[state]}
          </span>
        </span>
        <button type="button" className="quiet" onClick={() => onRemove(user)} aria-label={`Stop watching ${user}`}>
          ✕
        </button>
      </p>
      <Note presence={presence} />
      <p className="since">
        {typists.includes(user) ? (
          <span className="typing">is typing…</span>
        ) : (
          <Since presence={presence} offset_ms={offset_ms} />
        )}
      </p>
      <div className="actions">
        {onOpen && (
          <button type="button" onClick={() => onOpen(user)}>
            Open as {user}
          </button>
        )}
        <Toggle list="blocks" user={user} ownSettings={ownSettings} word="Block" />
        <Toggle list="contacts" user={user} ownSettings={ownSettings} word="Contact" />
      </div>
    </li>
  );
}

function Note({ presence }: { presence: Presence | undefined }) {
  const note = presence?.note;
  if (!note) return null;
  return (
    <p className="note">
      {note.emoji && <span className="emoji">{note.emoji}</span>} {note.text}
    </p>
  );
}

/** How long the state has lasted, or when the user was last seen. */
function Since({ presence, offset_ms }: { presence: Presence | undefined; offset_ms: number }) {
  const now = useNow() + offset_ms;
  if (!presence || presence.state === null) return <>&nbsp;</>;
  const { state, since, last_seen } = presence;
  if (state !== "offline") return <>{since === null ? "online" : `for ${span(now - since)}`}</>;
  return <>{last_seen === null ? "last seen unknown or hidden" : `last seen ${ago(last_seen, now)}`}</>;
}

/** A button that adds a user to a list, or removes them. */
function Toggle(props: { list: "blocks" | "contacts"; user: string; ownSettings: OwnSettings; word: string }) {
  const { list, user, ownSettings, word } = props;
  const [busy, setBusy] = useState(false);
  const listed = ownSettings[list].has(user);
  const turn = async () => {
    setBusy(true);
    await ownSettings.put(list, user, !listed);
    setBusy(false);
  };
  return (
    <button type="button" onClick={turn} disabled={busy} aria-pressed={listed} aria-label={`${word} ${user}`}>
      {listed && <span aria-hidden="true">✓ </span>}
      {word}
    </button>
  );
}
