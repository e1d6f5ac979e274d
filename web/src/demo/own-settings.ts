// The user's blocks, contacts and privacy.

import { useCallback, useEffect, useState } from "react";

import type { Access } from "../api/credentials";
import { request, errorText } from "../api/request";
import type { Privacy } from "../api/types";

/** The lists and privacy, and how to change them. */
export interface OwnSettings {
  blocks: ReadonlySet<string>;
  contacts: ReadonlySet<string>;
  privacy: Privacy | null;
  put: (list: "blocks" | "contacts", other: string, listed: boolean) => Promise<void>;
  setPrivacy: (privacy: Privacy) => Promise<void>;
}

/** Reads them at first and whenever the window gets focus, as another window may have changed them. Errors go to
 * `onProblem`. */
export function useOwnSettings(access: Access, onProblem: (problem: string) => void): OwnSettings {
  const [blocks, setBlocks] = useState<ReadonlySet<string>>(new Set());
  const [contacts, setContacts] = useState<ReadonlySet<string>>(new Set());
  const [privacy, keepPrivacy] = useState<Privacy | null>(null);

  const read = useCallback(async () => {
    try {
      const blocked = await request<{ blocks: string[] }>(access, "GET", "/v1/blocks");
      const listed = await request<{ contacts: string[] }>(access, "GET", "/v1/contacts");
      const audience = await request<Privacy>(access, "GET", "/v1/privacy");
      setBlocks(new Set(blocked.blocks));
      setContacts(new Set(listed.contacts));
      keepPrivacy({ presence: audience.presence, last_seen: audience.last_seen });
    } catch (failure) {
      onProblem(errorText(failure));
    }
  }, [access, onProblem]);

  useEffect(() => {
    void read();
    addEventListener("focus", read);
    return () => removeEventListener("focus", read);
  }, [read]);

  const put = async (list: "blocks" | "contacts", other: string, listed: boolean) => {
    try {
      await request(access, listed ? "PUT" : "DELETE", `/v1/${list}/${encodeURIComponent(other)}`);
      const change = list === "blocks" ? setBlocks : setContacts;
      change((before) => new Set(listed ? [...before, other] : [...before].filter((one) => one !== other)));
    } catch (failure) {
      onProblem(errorText(failure));
    }
  };

  const setPrivacy = async (wanted: Privacy) => {
    try {
      await request(access, "PUT", "/v1/privacy", wanted);
      keepPrivacy(wanted);
    } catch (failure) {
      onProblem(errorText(failure));
    }
  };

  return { blocks, contacts, privacy, put, setPrivacy };
}
