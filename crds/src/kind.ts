/** What the three kinds share around their spec and status. */
import * as z from "zod";
import type { KindDefinition, KindResource, PrinterColumn } from "./definition.ts";
import { API_VERSION, GROUP, newObjectMetaSchema, objectMetaSchema, VERSION } from "./object.ts";

/** `observedGeneration: -1`, so that no health check calls a new object current. */
export const UNOBSERVED = { observedGeneration: -1 } as const;

/** The object as the API server returns it, and as it is about to be created. `status` has its default already. */
export function objectSchemas<Kind extends string, Spec extends z.ZodType, Status extends z.ZodType>(
  kind: Kind,
  sections: { readonly spec: Spec; readonly status: Status },
) {
  const envelope = { apiVersion: z.literal(API_VERSION), kind: z.literal(kind) };
  return {
    stored: z.object({ ...envelope, metadata: objectMetaSchema, ...sections }),
    fresh: z.object({ ...envelope, metadata: newObjectMetaSchema, spec: sections.spec }),
  };
}

/** How a client names the resource of a kind. */
export const resourceOf = ({ plural, kind, scope }: KindDefinition): KindResource => ({
  group: GROUP,
  version: VERSION,
  plural,
  kind,
  namespaced: scope === "Namespaced",
});

/** The status of the condition Ready. */
export const readyColumn = (description: string): PrinterColumn => ({
  name: "Ready",
  type: "string",
  jsonPath: '.status.conditions[?(@.type=="Ready")].status',
  description,
});

/** The reason of the condition Ready. */
export const REASON_COLUMN: PrinterColumn = {
  name: "Reason",
  type: "string",
  jsonPath: '.status.conditions[?(@.type=="Ready")].reason',
  description: "Why it is Ready or not.",
  priority: 1,
};

export const AGE_COLUMN: PrinterColumn = {
  name: "Age",
  type: "date",
  jsonPath: ".metadata.creationTimestamp",
  description: "Time since creation.",
};
