// The demo: this window is one user; other windows are other users.

import { useEffect, useMemo, useState, useSyncExternalStore } from "react";

import { go, write } from "../route";
import { mayType, type Access } from "../api/credentials";
import { Conversation } from "./conversation";
import { UserCards } from "./user-cards";
import { useOwnSettings } from "./own-settings";
import { CONVERSATION, DemoSession, type DemoState } from "./session";
import { Timeline } from "./timeline";
import { OwnStatus } from "./own-status";

/** `users` are the users shown, in addition to the own one. */
export function DemoView({ access, name, users }: { access: Access; name: string; users: readonly string[] }) {
  const session = useMemo(() => new DemoSession(access, name), [access, name]);
  const state = useSyncExternalStore(session.subscribe, session.current);
  const ownSettings = useOwnSettings(access, session.setProblem);
  const watched = useMemo(() => [...new Set([name, ...users])], [name, users.join("\n")]);

  useEffect(() => session.watch(watched), [session, watched]);
  useEffect(() => {
    session.start();
    return session.stop;
  }, [session]);

  const others = watched.filter((user) => user !== name);
  const open = (user: string) => {
    const address = write({ view: "demo", name: user, users: watched });
    window.open(location.pathname + address, "_blank", "noopener,width=1100,height=800");
  };
  const named = access.kind === "name";
  const gone = state.status === "left" || state.status === "closed";
  return (
    <>
      <h1 className="visually-hidden">Demo</h1>
      <ErrorBanner state={state} onDismiss={() => session.setProblem(null)} />
      <div className="demo">
        <OwnStatus
          name={name}
          connection={state.status}
          presence={state.presences.get(name)}
          ownSettings={ownSettings}
          onStatus={session.setStatus}
          onLeave={session.stop}
          onReturn={session.start}
          onRename={named ? () => go({ name: null }) : null}
        />
        <div className="middle">
          <UserCards
            users={others}
            presences={state.presences}
            stale={gone ? new Set(others) : state.stale}
            typists={state.typists}
            ownSettings={ownSettings}
            offset_ms={state.offset?.offset_ms ?? 0}
            onAdd={(user) => user && go({ users: [...new Set([...users, user])] })}
            onRemove={(user) => go({ users: watched.filter((one) => one !== user) })}
            onOpen={named ? open : null}
          />
          <Conversation
            typists={state.typists}
            allowed={mayType(access, CONVERSATION)}
            disabled={gone}
            onTyping={session.typing}
            onStop={session.stopTyping}
          />
        </div>
        <Timeline entries={state.entries} offset={state.offset} />
      </div>
    </>
  );
}

/** Reports errors, and that the host does not respond. */
function ErrorBanner({ state, onDismiss }: { state: DemoState; onDismiss: () => void }) {
  return (
    <>
      {state.problem && (
        <p className="banner" role="alert">
          {state.problem}{" "}
          <button type="button" onClick={onDismiss}>
            Dismiss
          </button>
        </p>
      )}
      {state.status === "offline" && (
        <p className="banner" role="alert">
          The host does not respond. The states below may be out of date. Reconnecting.
        </p>
      )}
    </>
  );
}

/** Asks for a name, where the host has no key. */
export function NamePicker({ users }: { users: readonly string[] }) {
  const [name, setName] = useState("");
  return (
    <section className="panel picker" aria-labelledby="picker-title">
      <h1 id="picker-title">Pick a name</h1>
      <p>
        This host has no key, so it accepts any name. Pick one, then open a second window as another user and watch both
        come online.
      </p>
      <div className="names">
        {users.map((one) => (
          <button type="button" key={one} onClick={() => go({ name: one })}>
            {one}
          </button>
        ))}
      </div>
      <form
        className="inline"
        onSubmit={(event) => {
          event.preventDefault();
          if (name.trim()) go({ name: name.trim() });
        }}
      >
        <label>
          Another name
          <input value={name} onChange={(event) => setName(event.target.value)} maxLength={128} autoComplete="off" />
        </label>
        <button type="submit" className="primary">
          Continue
        </button>
      </form>
    </section>
  );
}
