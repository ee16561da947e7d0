// Composes subgraphs with the composers of Apollo and of The Guild. Says the errors and the supergraph of each.

import { composeServices as apollo } from "@apollo/composition";
import { composeServices as guild } from "@theguild/federation-composition";
import { parse } from "graphql";
import { say, told } from "./conversation.js";

const { subgraphs } = await told();
const services = subgraphs.map(({ name, url, sdl }) => ({ name, url, typeDefs: parse(sdl) }));

for (const [composer, compose] of Object.entries({ apollo, guild })) {
  const { errors = [], supergraphSdl } = compose(services);
  say({ composer, errors: errors.map(({ message }) => message), supergraph: supergraphSdl ?? null });
}
