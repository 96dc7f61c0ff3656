// Numbers, durations and sizes as text.
import { language } from "../state/preferences";
import { t } from "../text";

const locale = () => (language.value === "zh" ? "zh-CN" : "en-US");

export const number = (value: number, digits = 0): string =>
  value.toLocaleString(locale(), { maximumFractionDigits: digits });

/** A count; with "≥" if the store stopped counting. */
export const count = (value: number, isCut = false): string => (isCut ? "≥" : "") + number(value);

export const percent = (share: number, digits = 2): string =>
  share.toLocaleString(locale(), { style: "percent", maximumFractionDigits: digits });

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A duration of `ms`, with at most two units. */
export function duration(ms: number): string {
  const units = t().units;
  const two = (big: number, bigUnit: string, small: number, smallUnit: string) => {
    const whole = Math.floor(ms / big);
    const rest = Math.floor((ms % big) / small);
    return rest === 0
      ? `${number(whole)} ${bigUnit}`
      : `${number(whole)} ${bigUnit} ${rest} ${smallUnit}`;
  };
  if (ms < SECOND) return `${number(ms, ms < 10 ? 1 : 0)} ${units.ms}`;
  if (ms < MINUTE) return `${number(ms / SECOND, ms < 10 * SECOND ? 1 : 0)} ${units.s}`;
  if (ms < HOUR) return two(MINUTE, units.min, SECOND, units.s);
  if (ms < DAY) return two(HOUR, units.h, MINUTE, units.min);
  return two(DAY, units.d, HOUR, units.h);
}

/** An age of `ms` in whole seconds or larger units. */
export const age = (ms: number): string => duration(Math.max(0, Math.floor(ms / 1000)) * 1000 || 0)
  .replace(/^0 \S+$/, `0 ${t().units.s}`);

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let scaled = value;
  let unit = 0;
  while (scaled >= 1024 && unit < units.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${number(scaled, scaled < 10 ? 1 : 0)} ${units[unit]}`;
}
