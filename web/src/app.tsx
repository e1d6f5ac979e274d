// The page: a header, a way in, and one of two views.

import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";

import { useAddress, write, type View } from "./route";
import type { Access } from "./api/credentials";
import { useEntry } from "./auth";
import { FigureSource } from "./stats/poller";
import { RunView } from "./monitor/monitor-view";
import { SignedIn, SignIn } from "./sign-in";
import { chooseTheme, useTheme } from "./theme";
import { NamePicker, TryView } from "./demo/demo-view";

/** All of it. */
export function App() {
  const address = useAddress();
  const { door, access, signIn, signOut } = useEntry();
  const source = useMemo(() => access && new FigureSource(access), [access]);
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    // Windows of several people are told apart by their titles.
    document.title = address.view === "run" ? "Watch it run · Rollcall" : `${address.name ?? "Try it"} · Rollcall`;
  }, [address.view, address.name]);
  return (
    <>
      <a
        className="skip"
        href="#content"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <Header />
      {access?.kind === "token" && <SignedIn claims={access.claims} onSignOut={signOut} />}
      <main id="content" ref={main} tabIndex={-1}>
        {door.kind === "asking" && <p className="empty">Asking the host…</p>}
        {door.kind === "gone" && (
          <p className="banner" role="alert">
            {door.why} It is asked again until it lets us in.
          </p>
        )}
        {door.kind === "locked" && !access && <SignIn onToken={signIn} />}
        {access && source && address.view === "run" && <RunView access={access} source={source} />}
        {access && (
          <Kept shown={address.view === "try"}>
            <Try access={access} />
          </Kept>
        )}
      </main>
    </>
  );
}

/** Who is in the room stays there while the figures are looked at. Who only looks at them never enters it. */
function Kept({ shown, children }: { shown: boolean; children: ReactNode }) {
  const [entered, setEntered] = useState(shown);
  if (shown && !entered) setEntered(true);
  return entered && <div hidden={!shown}>{children}</div>;
}

/** The room, as soon as it is known who enters it. */
function Try({ access }: { access: Access }) {
  const { name, people } = useAddress();
  const named = useMemo((): Access | null => (name === null ? null : { kind: "name", name }), [name]);
  if (access.kind === "token") {
    const user = access.claims.user;
    if (user === null) return <p className="banner">This token names nobody, so there is nobody to be.</p>;
    return <TryView key={access.token} access={access} name={user} people={people} />;
  }
  if (name === null || named === null) return <NamePicker people={people} />;
  return <TryView key={name} access={named} name={name} people={people} />;
}

function Header() {
  return (
    <header>
      <p className="brand">
        <svg viewBox="0 0 32 32" width="28" height="28" aria-hidden="true" focusable="false">
          <rect className="tile" width="32" height="32" rx="8" />
          <circle cx="11" cy="11" r="4" />
          <circle className="ring" cx="21" cy="11" r="3" />
          <circle className="ring" cx="11" cy="21" r="3" />
          <circle cx="21" cy="21" r="4" />
        </svg>
        <strong>Rollcall</strong> <span>who is here?</span>
      </p>
      <nav aria-label="Views">
        <ViewLink view="try">Try it</ViewLink>
        <ViewLink view="run">Watch it run</ViewLink>
      </nav>
      <ThemeButton />
    </header>
  );
}

function ViewLink({ view, children }: { view: View; children: string }) {
  const address = useAddress();
  return (
    <a href={write({ ...address, view })} aria-current={address.view === view ? "page" : undefined}>
      {children}
    </a>
  );
}

function ThemeButton() {
  const theme = useTheme();
  const other = theme === "dark" ? "light" : "dark";
  return (
    <button type="button" className="theme" onClick={() => chooseTheme(other)}>
      <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
        <circle cx="8" cy="8" r="6.2" fill="none" stroke="currentColor" strokeWidth="1.6" />
        <path d="M8 1.8a6.2 6.2 0 0 1 0 12.4z" fill="currentColor" />
      </svg>
      {other === "dark" ? "Dark" : "Light"}
    </button>
  );
}
