// The dictionary of the chosen language.
import { computed } from "@preact/signals";
import { language } from "../state/preferences";
import { en, type Dictionary } from "./en";
import { zh } from "./zh";

const dictionaries: Record<"en" | "zh", Dictionary> = { en, zh };

const chosen = computed(() => dictionaries[language.value]);

/** The texts. A component that reads them is rendered again when the language changes. */
export const t = (): Dictionary => chosen.value;

/** The name of a language, in that language. */
export const nameOf = (of: "en" | "zh"): string => dictionaries[of].name;
