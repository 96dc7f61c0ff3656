// Theme, language and time zone, which localStorage keeps.
import { effect, signal, type Signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";
export type Language = "en" | "zh";
export type Zone = "local" | "utc";

/** A value that is kept under `key`; the first choice is the default. */
function kept<T extends string>(key: string, choices: readonly T[], preset: T): Signal<T> {
  let first = preset;
  try {
    first = choices.find((choice) => choice === localStorage.getItem(key)) ?? preset;
  } catch {
    // Without storage the preset is used.
  }
  const value = signal<T>(first);
  effect(() => {
    const next = value.value;
    try {
      localStorage.setItem(key, next);
    } catch {
      // It holds until the page is closed.
    }
  });
  return value;
}

export const THEMES = ["auto", "light", "dark"] as const;
export const LANGUAGES = ["en", "zh"] as const;
export const ZONES = ["local", "utc"] as const;

const ofBrowser: Language = navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";

export const theme = kept<Theme>("delayd.theme", THEMES, "auto");
export const language = kept<Language>("delayd.language", LANGUAGES, ofBrowser);
export const zone = kept<Zone>("delayd.zone", ZONES, "local");

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(prefersDark.matches);
prefersDark.addEventListener("change", (event) => (systemIsDark.value = event.matches));

/** The theme that is shown. */
export const shownTheme = (): "light" | "dark" =>
  theme.value === "auto" ? (systemIsDark.value ? "dark" : "light") : theme.value;

/** Keeps the attributes of the document the same as the preferences. */
export function applyPreferences(): void {
  effect(() => {
    document.documentElement.dataset["theme"] = shownTheme();
  });
  effect(() => {
    document.documentElement.lang = language.value === "zh" ? "zh-CN" : "en";
  });
}
