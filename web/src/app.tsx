// The page: header, sign-in and one of two views.

import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";

import { useRoute, write, type View } from "./route";
import type { Access } from "./api/credentials";
import { useAuth } from "./auth";
import { StatsPoller } from "./stats/poller";
import { MonitorView } from "./monitor/monitor-view";
import { SignedIn, SignIn } from "./sign-in";
import { chooseTheme, useTheme } from "./theme";
import { NamePicker, DemoView } from "./demo/demo-view";

export function App() {
  const route = useRoute();
  const { state: auth, access, signIn, signOut } = useAuth();
  const source = useMemo(() => access && new StatsPoller(access), [access]);
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    // The title names the user, to distinguish windows.
    document.title = route.view === "monitor" ? "Monitor · Rollcall" : `${route.name ?? "Demo"} · Rollcall`;
  }, [route.view, route.name]);
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
        {auth.kind === "checking" && <p className="empty">Connecting…</p>}
        {auth.kind === "unreachable" && (
          <p className="banner" role="alert">
            {auth.reason} Retrying.
          </p>
        )}
        {auth.kind === "token-required" && !access && <SignIn onToken={signIn} />}
        {access && source && route.view === "monitor" && <MonitorView access={access} source={source} />}
        {access && (
          <KeepMounted shown={route.view === "demo"}>
            <Demo access={access} />
          </KeepMounted>
        )}
      </main>
    </>
  );
}

/** Mounts the demo when it is first shown and keeps it, so that the user stays online while looking at the monitor. */
function KeepMounted({ shown, children }: { shown: boolean; children: ReactNode }) {
  const [entered, setEntered] = useState(shown);
  if (shown && !entered) setEntered(true);
  return entered && <div hidden={!shown}>{children}</div>;
}

/** The demo, once the user is known. */
function Demo({ access }: { access: Access }) {
  const { name, users } = useRoute();
  const named = useMemo((): Access | null => (name === null ? null : { kind: "name", name }), [name]);
  if (access.kind === "token") {
    const user = access.claims.user;
    if (user === null) return <p className="banner">This token has no user (claim sub), so the demo cannot start.</p>;
    return <DemoView key={access.token} access={access} name={user} users={users} />;
  }
  if (name === null || named === null) return <NamePicker users={users} />;
  return <DemoView key={name} access={named} name={name} users={users} />;
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
        <strong>Rollcall</strong> <span>presence</span>
      </p>
      <nav aria-label="Views">
        <ViewLink view="demo">Demo</ViewLink>
        <ViewLink view="monitor">Monitor</ViewLink>
      </nav>
      <ThemeButton />
    </header>
  );
}

function ViewLink({ view, children }: { view: View; children: string }) {
  const route = useRoute();
  return (
    <a href={write({ ...route, view })} aria-current={route.view === view ? "page" : undefined}>
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
