// Sign-in by token, where the host has a key: the form, and the bar that shows the user.

import { useState, type FormEvent } from "react";

import type { Claims } from "./api/credentials";
import { CONVERSATION } from "./demo/session";
import { moment } from "./format";

/** The form. `onToken` returns whether the text is a token. */
export function SignIn({ onToken }: { onToken: (token: string) => boolean }) {
  const [refused, setRefused] = useState(false);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    setRefused(!onToken(String(new FormData(event.currentTarget).get("token"))));
  };
  return (
    <section className="panel picker" aria-labelledby="sign-in-title">
      <h1 id="sign-in-title">Sign in</h1>
      <p>This host has a key: requests need a token with your user and scopes.</p>
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
          Not a JSON Web Token: it has three parts separated by dots.
        </p>
      )}
      <p className="hint">
        Stored until this tab is closed. To mint one with the scope of the monitor:{" "}
        <code>rollcall token --key FILE --user alice --conversation {CONVERSATION} --scope admin</code>
      </p>
    </section>
  );
}

/** The bar with the user, scopes and expiry of the token. */
export function SignedIn({ claims, onSignOut }: { claims: Claims; onSignOut: () => void }) {
  const { user, scopes, expires } = claims;
  return (
    <p className="strip">
      <span>
        Signed in as <strong>{user ?? "no user"}</strong>, {scopes.length ? `scope ${scopes.join(", ")}` : "no scope"}
        {expires !== null && `, until ${moment(expires, Date.now())}`}
      </span>
      <button type="button" className="quiet" onClick={onSignOut}>
        Sign out
      </button>
    </p>
  );
}
