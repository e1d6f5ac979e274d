// The error of every rejected call and every `error` listener: an RFC 9457 problem.

/** The members of `application/problem+json` that the service sends. */
export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  field?: string;
  rule?: string;
  limit?: number;
  retry_after_s?: number;
}

/** A problem. `status` is the HTTP status, or 0 if there was no response. */
export class RollcallError extends Error {
  override readonly name = "RollcallError";
  declare readonly status: number;
  declare readonly title: string;
  declare readonly detail: string;
  /** Milliseconds to wait before trying again. */
  declare readonly retryAfterMs: number | undefined;

  /** `problem` is what the service sent. Compare its `type` in code; its `field` names the rejected field. */
  constructor(readonly problem: Problem) {
    const { status = 0, title = "", detail = title, retry_after_s } = problem;
    super(detail);
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.retryAfterMs = retry_after_s && retry_after_s * 1000;
  }
}

/** Converts anything thrown into a `RollcallError`. */
export function asError(thrown: unknown, title = "No answer"): RollcallError {
  return thrown instanceof RollcallError ? thrown : new RollcallError({ title, detail: String(thrown) });
}
