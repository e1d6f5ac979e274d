// Where the host has a key: what asks for a token, and the strip that says whose it is once there is one.

import { useState, type FormEvent } from "react";

import type { Claims } from "./api/credentials";
import { CONVERSATION } from "./demo/session";
import { moment } from "./format";

/** Asks for a token. `onToken` says whether it is one. */
export function SignIn({ onToken }: { onToken: (token: string) => boolean }) {
  const [refused, setRefused] = useState(false);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    setRefused(!onToken(String(new FormData(event.currentTarget).get("token"))));
  };
  return (
    <section className="panel picker" aria-labelledby="sign-in-title">
      <h1 id="sign-in-title">Who are you?</h1>
      <p>This host has a key, so it takes a token that says who you are and what you may do.</p>
      <form className="inline" onSubmit={submit}>
        <label>
          Paste a token
          <input type="password" name="token" required autoComplete="off" spellCheck={false} />
        </label>
        <button type="submit" className="primary">
          Sign in
        </button>
      </form>
      {refused && (
        <p className="problem" role="alert">
          That is no token: it has three parts with dots between them.
        </p>
      )}
      <p className="hint">
        It is kept until this tab is closed. To make one, with the scope that it takes to watch it run:{" "}
        <code>rollcall token --key FILE --user alice --conversation {CONVERSATION} --scope admin</code>
      </p>
    </section>
  );
}

/** Says whose token it is. */
export function SignedIn({ claims, onSignOut }: { claims: Claims; onSignOut: () => void }) {
  const { user, scopes, expires } = claims;
  return (
    <p className="strip">
      <span>
        Signed in as <strong>{user ?? "nobody"}</strong>, {scopes.length ? `scope ${scopes.join(", ")}` : "no scope"}
        {expires !== null && `, until ${moment(expires, Date.now())}`}
      </span>
      <button type="button" className="quiet" onClick={onSignOut}>
        Sign out
      </button>
    </p>
  );
}
