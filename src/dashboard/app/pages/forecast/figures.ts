import type { ForecastFigures } from "../../api/types";
import { t } from "../../text";
import { number } from "../../view/format";

/** The tasks that consumers pull, among the services. */
export const PULLED = "@pull";

export const nameOf = (sn: string): string => (sn === PULLED ? t().forecast.pulled : sn);

/** The tasks that are due by the end of the span. */
export const within = ({ overdue, buckets }: ForecastFigures): number =>
  buckets.reduce((sum, value) => sum + value, overdue);

export const rate = (value: number | null | undefined): string =>
  value == null ? "–" : number(value, value < 10 ? 1 : 0);
