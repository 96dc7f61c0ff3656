import type { ComponentChild } from "preact";
import type { may } from "../state/session";
import type { Dictionary } from "../text/en";
import { Add } from "../pages/add";
import { Audit } from "../pages/audit";
import { Destinations } from "../pages/destinations";
import { Overview } from "../pages/overview";
import { System } from "../pages/system";
import { Task } from "../pages/task";
import { Topics } from "../pages/topics";

export interface Page {
  /** Its part of the address. */
  name: string;
  title: keyof Dictionary["pages"];
  /** Whether the token may see it. */
  mayOpen: (rights: typeof may) => boolean;
  /** Which right is missing otherwise. */
  needs: "readAll" | "readTopics" | "addTasks" | "noRights";
  show: (parts: string[]) => ComponentChild;
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
    show: () => <Topics />,
  },
  {
    name: "destinations",
    title: "destinations",
    mayOpen: (rights) => rights.readAll(),
    needs: "readAll",
    show: () => <Destinations />,
  },
  {
    name: "task",
    title: "task",
    mayOpen: (rights) => rights.seeTasks(),
    needs: "noRights",
    show: (parts) => <Task parts={parts} />,
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
