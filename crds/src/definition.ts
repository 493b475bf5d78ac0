import type * as z from "zod";

/** A column of `kubectl get`. Columns of priority 1 appear with `-o wide`. */
export interface PrinterColumn {
  readonly name: string;
  readonly type: "string" | "integer" | "date";
  readonly jsonPath: string;
  readonly description: string;
  readonly priority?: 1;
}

/** A kind as the generator needs it: its schemas and how it presents itself to kubectl. */
export interface KindDefinition {
  readonly kind: string;
  readonly plural: string;
  readonly singular: string;
  readonly shortName: string;
  readonly scope: "Namespaced" | "Cluster";
  readonly description: string;
  readonly spec: z.ZodType;
  readonly status: z.ZodType;
  readonly columns: readonly PrinterColumn[];
}

/** Names a resource to a client; the shape of the operator's `ResourceType`. */
export interface KindResource {
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly kind: string;
  readonly namespaced: boolean;
}
