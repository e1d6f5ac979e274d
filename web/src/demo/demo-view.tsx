// Try it: a room in which this window is one person, and other windows are the others.

import { useEffect, useMemo, useState, useSyncExternalStore } from "react";

import { go, write } from "../route";
import { takesPart, type Access } from "../api/credentials";
import { Conversation } from "./conversation";
import { People } from "./user-cards";
import { useRelations } from "./relations";
import { CONVERSATION, Room, type Scene } from "./session";
import { Timeline } from "./timeline";
import { You } from "./own-status";

/** The view. `people` is everybody in the room, whoever this window is among them. */
export function TryView({ access, name, people }: { access: Access; name: string; people: readonly string[] }) {
  const room = useMemo(() => new Room(access, name), [access, name]);
  const scene = useSyncExternalStore(room.follow, room.current);
  const relations = useRelations(access, room.complain);
  const everybody = useMemo(() => [...new Set([name, ...people])], [name, people.join("\n")]);

  useEffect(() => room.watch(everybody), [room, everybody]);
  useEffect(() => {
    room.enter();
    return room.leave;
  }, [room]);

  const others = everybody.filter((user) => user !== name);
  const open = (user: string) => {
    const address = write({ view: "try", name: user, people: everybody });
    window.open(location.pathname + address, "_blank", "noopener,width=1100,height=800");
  };
  const named = access.kind === "name";
  const gone = scene.link === "left" || scene.link === "closed";
  return (
    <>
      <h1 className="visually-hidden">Try it</h1>
      <Trouble scene={scene} onDismiss={() => room.complain(null)} />
      <div className="room">
        <You
          name={name}
          link={scene.link}
          presence={scene.presences.get(name)}
          relations={relations}
          onStatus={room.choose}
          onLeave={room.leave}
          onReturn={room.enter}
          onRename={named ? () => go({ name: null }) : null}
        />
        <div className="middle">
          <People
            people={others}
            presences={scene.presences}
            stale={gone ? new Set(others) : scene.stale}
            typists={scene.typists}
            relations={relations}
            offset_ms={scene.offset?.offset_ms ?? 0}
            onAdd={(user) => user && go({ people: [...new Set([...people, user])] })}
            onRemove={(user) => go({ people: everybody.filter((one) => one !== user) })}
            onOpen={named ? open : null}
          />
          <Conversation
            typists={scene.typists}
            allowed={takesPart(access, CONVERSATION)}
            disabled={gone}
            onTyping={room.typing}
            onStop={room.stopTyping}
          />
        </div>
        <Timeline entries={scene.entries} offset={scene.offset} />
      </div>
    </>
  );
}

/** Says what was refused, and that the host is gone. */
function Trouble({ scene, onDismiss }: { scene: Scene; onDismiss: () => void }) {
  return (
    <>
      {scene.problem && (
        <p className="banner" role="alert">
          {scene.problem}{" "}
          <button type="button" onClick={onDismiss}>
            Dismiss
          </button>
        </p>
      )}
      {scene.link === "offline" && (
        <p className="banner" role="alert">
          The host does not answer. What you see is how it was; the connection is tried again until it holds.
        </p>
      )}
    </>
  );
}

/** Where the host has no key, anybody is whoever they say: this asks who. */
export function NamePicker({ people }: { people: readonly string[] }) {
  const [name, setName] = useState("");
  return (
    <section className="panel picker" aria-labelledby="picker-title">
      <h1 id="picker-title">Who are you?</h1>
      <p>
        This host has no key, so it takes your word for it. Pick a name, then open a second window as somebody else and
        watch them see each other.
      </p>
      <div className="names">
        {people.map((one) => (
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
          Enter
        </button>
      </form>
    </section>
  );
}
