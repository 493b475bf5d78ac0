import { driverContract } from "./contract.ts";
import { makeDocker } from "./docker.ts";

driverContract("docker", makeDocker, { runsCommands: true });
