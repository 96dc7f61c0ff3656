// Sends calls to the API, relative to the page, so that they work below any path prefix.
import type { AnswerOf, Path, RequestOf } from "./types";
import { token, tokenRefused } from "../state/token";

/** A call that failed. `status` is 0 if there was no answer. */
export class CallError extends Error {
  constructor(
    readonly status: number,
    readonly code: number,
    message: string,
    readonly requestId?: string,
    /** The task is leased, and will be cancelled unless it succeeds. */
    readonly isCancelPending = false,
  ) {
    super(message);
  }
}

/** An answer, and its exact text: parsing would round large numbers. */
export interface Answered<A> {
  data: A;
  text: string;
}

/** Whether a call was cancelled because its answer is no longer wanted. */
export const isAbort = (error: unknown): boolean =>
  error instanceof DOMException && error.name === "AbortError";

/** Sends a body as it is. Throws `CallError`, or the `AbortError` of the signal. */
export async function send(path: Path, body: string, signal?: AbortSignal): Promise<Response> {
  const sent = token.peek();
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (sent !== null) headers["authorization"] = `Bearer ${sent}`;
  let response: Response;
  try {
    response = await fetch(path.slice(1), {
      method: "POST",
      body,
      headers,
      cache: "no-store",
      credentials: "same-origin",
      ...(signal && { signal }),
    });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new CallError(0, 0, "");
  }
  if (response.ok) return response;
  if (response.status === 401) tokenRefused(sent);
  throw failureOf(response.status, await response.text().catch(() => ""));
}

/** Sends a body as it is, and reads the answer. */
export async function callText<P extends Path>(
  path: P,
  body: string,
  signal?: AbortSignal,
): Promise<Answered<AnswerOf<P>>> {
  const response = await send(path, body, signal);
  try {
    const text = await response.text();
    return { data: JSON.parse(text) as AnswerOf<P>, text };
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new CallError(0, 0, "");
  }
}

/** Calls, and answers with the fields. */
export async function call<P extends Path>(
  path: P,
  request: RequestOf<P>,
  signal?: AbortSignal,
): Promise<AnswerOf<P>> {
  return (await callText(path, JSON.stringify(request), signal)).data;
}

function failureOf(status: number, text: string): CallError {
  try {
    const { dm_error, error_msg, request_id, cancel_pending } = JSON.parse(text);
    const [code, message] = [Number(dm_error) || 0, String(error_msg ?? "")];
    return new CallError(status, code, message, request_id, cancel_pending === true);
  } catch {
    // A proxy answered.
    return new CallError(status, 0, "");
  }
}
