// Short names for the generated types.
import type { components, paths } from "./schema";

type Schemas = components["schemas"];

export type AuditEntry = Schemas["AuditEntry"];
export type CauseTopic = Schemas["CauseTopic"];
export type Cause = Schemas["Cause"];
export type Destination = Schemas["DestinationShown"];
export type Forecasts = Schemas["ServiceForecastsAnswer"];
export type ForecastFigures = Schemas["ForecastFigures"];
export type ServiceForecast = Schemas["ServiceForecast"];
export type Instance = Schemas["InstanceShown"];
export type InstanceDetail = AnswerOf<"/delay/instance/get">;
export type Overview = Schemas["Overview"];
export type ScheduleShown = AnswerOf<"/delay/schedule/get">;
export type ScheduleListed = AnswerOf<"/delay/schedule/list">["schedules"][number];
export type Series = Schemas["Series"];
export type Misfire = Schemas["MisfirePolicy"];
export type Attempt = Schemas["Attempt"];
export type Task = Schemas["Task"];
export type TaskListed = Schemas["Entry"];
export type TaskState = Schemas["TaskState"];
export type Topic = Schemas["TopicShownAnswer"];
export type TopicListed = Schemas["TopicListed"];
export type TopicSort = Schemas["TopicSort"];
export type WhoAmI = Schemas["WhoAmIAnswer"];
export type AddRequest = Schemas["AddRequest"];

/** A path of a call, such as `/delay/topic/list`. */
export type Path = keyof paths;
type Post<P extends Path> = paths[P]["post"];
export type RequestOf<P extends Path> = Post<P>["requestBody"]["content"]["application/json"];
type Contents<P extends Path> = Post<P>["responses"][200]["content"];
export type AnswerOf<P extends Path> = Contents<P> extends { "application/json": infer A }
  ? A
  : never;
