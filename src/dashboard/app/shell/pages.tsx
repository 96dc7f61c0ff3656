import type { ComponentChild } from "preact";
import type { may } from "../state/session";
import { t } from "../text";
import type { Dictionary } from "../text/en";
import { Add } from "../pages/add";
import { Audit } from "../pages/audit";
import { Dead } from "../pages/dead";
import { Destinations } from "../pages/destinations";
import { DestinationDetail } from "../pages/destinations/detail";
import { Forecast } from "../pages/forecast";
import { Overview } from "../pages/overview";
import { Schedules } from "../pages/schedules";
import { System } from "../pages/system";
import { Task } from "../pages/task";
import { Tasks } from "../pages/tasks";
import { Topic } from "../pages/topic";
import { Topics } from "../pages/topics";

export interface Page {
  /** Its part of the address. */
  name: string;
  title: keyof Dictionary["pages"];
  /** Whether the token may see it. */
  mayOpen: (rights: typeof may) => boolean;
  /** Which right is missing otherwise. */
  needs: "readAll" | "readTopics" | "addTasks" | "noRights";
  /** A heading other than the title. */
  heading?: (parts: string[]) => string | undefined;
  show: (parts: string[]) => ComponentChild;
  /** Whether the navigation leaves it out. */
  isHidden?: (rights: typeof may) => boolean;
}

/** All pages, in the order of the navigation. */
export const PAGES: Page[] = [
  {
    name: "",
    title: "overview",
    mayOpen: (rights) => rights.readAll(),
    needs: "readAll",
    show: () => <Overview />,
  },
  {
    name: "topics",
    title: "topics",
    mayOpen: (rights) => rights.listTopics(),
    needs: "readTopics",
    heading: ([topic]) => (topic ? t().topic.heading(topic) : undefined),
    show: ([topic]) => (topic ? <Topic name={topic} key={topic} /> : <Topics />),
  },
  {
    name: "tasks",
    title: "tasks",
    mayOpen: (rights) => rights.listTopics(),
    needs: "readTopics",
    show: ([topic = ""]) => <Tasks topic={topic} />,
  },
  {
    name: "schedules",
    title: "schedules",
    mayOpen: (rights) => rights.listTopics(),
    needs: "readTopics",
    heading: ([, name]) => (name ? t().schedules.heading(name) : undefined),
    show: ([topic = "", name = ""]) => <Schedules topic={topic} name={name} key={topic} />,
  },
  {
    name: "dead",
    title: "dead",
    mayOpen: (rights) => rights.listTopics(),
    needs: "readTopics",
    show: ([topic = ""]) => <Dead topic={topic} key={topic} />,
  },
  {
    name: "destinations",
    title: "destinations",
    mayOpen: (rights) => rights.readAll(),
    needs: "readAll",
    heading: ([sn]) => (sn ? t().destinations.heading(sn) : undefined),
    show: ([sn]) => (sn ? <DestinationDetail sn={sn} key={sn} /> : <Destinations />),
  },
  {
    name: "forecast",
    title: "forecast",
    mayOpen: (rights) => rights.readAll(),
    needs: "readAll",
    show: () => <Forecast />,
  },
  {
    name: "task",
    title: "task",
    mayOpen: (rights) => rights.seeTasks(),
    needs: "noRights",
    heading: ([, id]) => (id ? t().task.heading(id) : undefined),
    show: (parts) => <Task parts={parts} />,
    // The page of tasks finds one by its id alone.
    isHidden: (rights) => rights.readAll(),
  },
  {
    name: "add",
    title: "add",
    mayOpen: (rights) => rights.add(),
    needs: "addTasks",
    show: () => <Add />,
  },
  {
    name: "system",
    title: "system",
    mayOpen: () => true,
    needs: "noRights",
    show: () => <System />,
  },
  {
    name: "audit",
    title: "audit",
    mayOpen: (rights) => rights.readAll(),
    needs: "readAll",
    show: () => <Audit />,
  },
];
