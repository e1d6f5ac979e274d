// What a person set about others: whom they blocked, whom they listed, and who may see them.

import { useCallback, useEffect, useState } from "react";

import type { Access } from "../api/credentials";
import { ask, words } from "../api/request";
import type { Privacy } from "../api/types";

/** One's own lists and privacy, and how to change them. What goes wrong is told to `onProblem`. */
export interface Relations {
  blocks: ReadonlySet<string>;
  contacts: ReadonlySet<string>;
  privacy: Privacy | null;
  put: (list: "blocks" | "contacts", other: string, listed: boolean) => Promise<void>;
  setPrivacy: (privacy: Privacy) => Promise<void>;
}

/** Reads them at first and whenever the window is looked at again: another window may have changed them. */
export function useRelations(access: Access, onProblem: (problem: string) => void): Relations {
  const [blocks, setBlocks] = useState<ReadonlySet<string>>(new Set());
  const [contacts, setContacts] = useState<ReadonlySet<string>>(new Set());
  const [privacy, keepPrivacy] = useState<Privacy | null>(null);

  const read = useCallback(async () => {
    try {
      const blocked = await ask<{ blocks: string[] }>(access, "GET", "/v1/blocks");
      const listed = await ask<{ contacts: string[] }>(access, "GET", "/v1/contacts");
      const audience = await ask<Privacy>(access, "GET", "/v1/privacy");
      setBlocks(new Set(blocked.blocks));
      setContacts(new Set(listed.contacts));
      keepPrivacy({ presence: audience.presence, last_seen: audience.last_seen });
    } catch (failure) {
      onProblem(words(failure));
    }
  }, [access, onProblem]);

  useEffect(() => {
    void read();
    addEventListener("focus", read);
    return () => removeEventListener("focus", read);
  }, [read]);

  const put = async (list: "blocks" | "contacts", other: string, listed: boolean) => {
    try {
      await ask(access, listed ? "PUT" : "DELETE", `/v1/${list}/${encodeURIComponent(other)}`);
      const change = list === "blocks" ? setBlocks : setContacts;
      change((before) => new Set(listed ? [...before, other] : [...before].filter((one) => one !== other)));
    } catch (failure) {
      onProblem(words(failure));
    }
  };

  const setPrivacy = async (wanted: Privacy) => {
    try {
      await ask(access, "PUT", "/v1/privacy", wanted);
      keepPrivacy(wanted);
    } catch (failure) {
      onProblem(words(failure));
    }
  };

  return { blocks, contacts, privacy, put, setPrivacy };
}
