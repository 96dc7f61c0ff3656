// Points in time as text, in the chosen zone. The zone is always shown.
import { zone } from "../state/preferences";

const two = (value: number): string => String(value).padStart(2, "0");

/** The same moment with the digits of the chosen zone in its UTC fields. */
const shifted = (ms: number): Date =>
  new Date(zone.value === "utc" ? ms : ms - new Date(ms).getTimezoneOffset() * 60_000);

/** A moment as `<input type="datetime-local">` has it, in the chosen zone. */
export const inputOf = (ms: number): string =>
  Number.isFinite(ms) && Math.abs(ms) < 8e15 ? shifted(ms).toISOString().slice(0, 19) : "";

/** The moment of such an input, in Unix ms; NaN if it is incomplete. */
export const momentOf = (input: string): number =>
  Date.parse(zone.value === "utc" && input !== "" ? `${input}Z` : input);

/** The name of the zone at a moment: `UTC`, or such as `UTC+8`. */
export function zoneName(ms: number): string {
  const minutes = zone.value === "utc" ? 0 : -new Date(ms).getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const size = Math.abs(minutes);
  const rest = size % 60 === 0 ? "" : `:${two(size % 60)}`;
  return `UTC${minutes < 0 ? "−" : "+"}${Math.floor(size / 60)}${rest}`;
}

/** `17:05:09` */
export function clock(ms: number, withSeconds = true): string {
  const date = shifted(ms);
  const minutes = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`;
  return withSeconds ? `${minutes}:${two(date.getUTCSeconds())}` : minutes;
}

/** `11-23 17:05` */
export const dayAndClock = (ms: number): string =>
  shifted(ms).toISOString().slice(5, 16).replace("T", " ");

/** `2026-11-23 17:05:09 UTC` */
export function moment(ms: number): string {
  const date = shifted(ms);
  const day = `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`;
  return `${day} ${clock(ms)} ${zoneName(ms)}`;
}
