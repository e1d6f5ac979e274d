// The user's own status: current state, choice and note, privacy.

import { useState, type FormEvent } from "react";

import type { Presence } from "@rollcall/client";

import { STANCES, type Audience, type Privacy, type Stance } from "../api/types";
import { Dot } from "../ui/state-dot";
import { STATE_TEXT, shownState, noteOf } from "./presence-text";
import type { OwnSettings } from "./own-settings";
import type { ConnectionStatus } from "./session";

/** The values of the status form. */
export interface Status {
  choice: Stance;
  text?: string;
  emoji?: string;
  forSeconds?: number;
}

export function OwnStatus(props: {
  name: string;
  connection: ConnectionStatus;
  presence: Presence | undefined;
  ownSettings: OwnSettings;
  onStatus: (status: Status) => Promise<void>;
  onLeave: () => void;
  onReturn: () => void;
  /** Picks another name; null where a token names the user. */
  onRename: (() => void) | null;
}) {
  const { name, connection, presence, ownSettings, onStatus, onLeave, onReturn, onRename } = props;
  const gone = connection === "left" || connection === "closed";
  return (
    <section className="panel you" aria-labelledby="you-title">
      <h2 id="you-title">
        You are <strong>{name}</strong>
      </h2>
      <p className={connection === "offline" ? "user stale" : "user"} data-you data-state={shownState(presence)}>
        <Dot state={gone ? "offline" : shownState(presence)} /> <span>{gone ? "offline" : seen(presence)}</span>
      </p>
      <p className="hint" data-connection={connection}>
        {CONNECTION_TEXT[connection]}
      </p>
      <div className="actions">
        {gone ? (
          <button type="button" className="primary" onClick={onReturn}>
            Go online
          </button>
        ) : (
          <button type="button" onClick={onLeave}>
            Go offline
          </button>
        )}
        {onRename && (
          <button type="button" onClick={onRename}>
            Change user
          </button>
        )}
      </div>
      <StatusForm onStatus={onStatus} disabled={gone} />
      <PrivacyForm ownSettings={ownSettings} />
    </section>
  );
}

const CONNECTION_TEXT: Record<ConnectionStatus, string> = {
  connecting: "Connecting…",
  online: "Connected: you are online while this window is open.",
  offline: "Connection lost; reconnecting.",
  paused: "Paused, because this window is hidden.",
  closed: "Disconnected.",
  left: "Disconnected: others see you offline.",
};

function seen(presence: Presence | undefined): string {
  const choice = (presence as { choice?: { choice?: Stance } } | undefined)?.choice?.choice;
  const note = noteOf(presence);
  if (choice === "invisible") return "invisible: others see you offline";
  return note ? `${STATE_TEXT[shownState(presence)]}: ${note}` : STATE_TEXT[shownState(presence)];
}

const STANCE_TEXT: Record<Stance, string> = {
  auto: "automatic",
  busy: "busy",
  away: "away",
  invisible: "invisible",
};

const SPANS: readonly (readonly [label: string, seconds: number | null])[] = [
  ["until I change it", null],
  ["for a minute", 60],
  ["for half an hour", 1_800],
  ["for two hours", 7_200],
  ["for eight hours", 28_800],
];

function StatusForm({ onStatus, disabled }: { onStatus: (status: Status) => Promise<void>; disabled: boolean }) {
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const [text, emoji, seconds] = [word(form, "text"), word(form, "emoji"), Number(form.get("span"))];
    setBusy(true);
    await onStatus({
      choice: (form.get("choice") as Stance | null) ?? "auto",
      ...(text && { text }),
      ...(emoji && { emoji }),
      ...(seconds > 0 && { forSeconds: seconds }),
    });
    setBusy(false);
  };
  return (
    <form onSubmit={submit} aria-label="Status">
      <fieldset disabled={disabled || busy}>
        <legend>Status</legend>
        <div className="choices">
          {STANCES.map((stance) => (
            <label key={stance}>
              <input type="radio" name="choice" value={stance} defaultChecked={stance === "auto"} />
              <span>{STANCE_TEXT[stance]}</span>
            </label>
          ))}
        </div>
        <div className="pair">
          <label className="short">
            Emoji
            <input name="emoji" maxLength={8} placeholder="☕" autoComplete="off" />
          </label>
          <label>
            Text
            <input name="text" maxLength={140} placeholder="back in a minute" autoComplete="off" />
          </label>
        </div>
        <div className="pair">
          <label>
            How long
            <select name="span">
              {SPANS.map(([label, seconds]) => (
                <option key={label} value={seconds ?? 0}>
                  {label}
                </option>
              ))}
            </select>
          </label>
          <button type="submit" className="primary">
            Set
          </button>
        </div>
      </fieldset>
    </form>
  );
}

const AUDIENCES: readonly Audience[] = ["everyone", "contacts", "nobody"];

function PrivacyForm({ ownSettings }: { ownSettings: OwnSettings }) {
  const { privacy, setPrivacy } = ownSettings;
  const choose = (part: keyof Privacy) => (event: { target: { value: string } }) => {
    if (privacy) void setPrivacy({ ...privacy, [part]: event.target.value as Audience });
  };
  return (
    <fieldset disabled={!privacy}>
      <legend>Who may see</legend>
      <div className="pair">
        <label>
          presence
          <select value={privacy?.presence ?? "everyone"} onChange={choose("presence")} name="presence">
            {AUDIENCES.map((audience) => (
              <option key={audience}>{audience}</option>
            ))}
          </select>
        </label>
        <label>
          last seen
          <select value={privacy?.last_seen ?? "everyone"} onChange={choose("last_seen")} name="last_seen">
            {AUDIENCES.map((audience) => (
              <option key={audience}>{audience}</option>
            ))}
          </select>
        </label>
      </div>
    </fieldset>
  );
}

function word(form: FormData, name: string): string {
  return String(form.get(name) ?? "").trim();
}
