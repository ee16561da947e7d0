// A list that a subscription keeps current.
import { gql } from "@urql/core";

export const SIGHTINGS = gql`
  query Sightings($area: String!) {
    sightings(area: $area, first: 100) { nodes { id description } }
  }
`;
export const REPORTED = gql`
  subscription Reported($area: String!) {
    sightingReported(area: $area) { id description }
  }
`;

export const updates = {
  Subscription: {
    sightingReported({ sightingReported: node }, variables, cache) {
      cache.updateQuery({ query: SIGHTINGS, variables }, (data) => {
        if (data === null) return null;
        const nodes = [node, ...data.sightings.nodes.filter((each) => each?.id !== node.id)];
        return { ...data, sightings: { ...data.sightings, nodes } };
      });
    },
  },
};
