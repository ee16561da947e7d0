// A list that a subscription keeps current, and that is paged into one list.
import { gql } from "@apollo/client";
import { relayStylePagination } from "@apollo/client/utilities";

export const SIGHTINGS = gql`
  query Sightings($area: String!, $after: String) {
    sightings(area: $area, first: 2, after: $after) {
      edges { cursor node { id description } }
      pageInfo { hasNextPage endCursor }
    }
  }
`;
const REPORTED = gql`
  subscription Reported($area: String!) {
    sightingReported(area: $area) { id description }
  }
`;

// One list for each value of these arguments: pages are appended.
export const typePolicies = { Query: { fields: { sightings: relayStylePagination(["area"]) } } };

export function followSightings(watched) {
  return watched.subscribeToMore({
    document: REPORTED,
    variables: { area: watched.variables.area },
    updateQuery(_, { complete, previousData, subscriptionData }) {
      if (!complete) return undefined;
      const node = subscriptionData.data.sightingReported;
      const edge = { __typename: "SightingEdge", cursor: "", node };
      const { edges, ...rest } = previousData.sightings;
      return { sightings: { ...rest, edges: [edge, ...edges.filter((each) => each.node?.id !== node.id)] } };
    },
  });
}
