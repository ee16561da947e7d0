#!/usr/bin/env bash
# Reads a home feed page by page, writes a post once however often it is sent, and follows likes: curl and jq.
#
#   shell/feed.sh feed USER [PAGES]
#   shell/feed.sh post TEXT
#   shell/feed.sh follow POST
#
# API_URL is the address of the gateway, API_TOKEN the token of a user.
set -euo pipefail
url=${API_URL:-http://127.0.0.1:8000/graphql}

# send QUERY VARIABLES [CURL OPTION…]: prints the response. curl repeats it after 429 and 503, as Retry-After says.
send() {
  jq -n --arg query "$1" --argjson variables "$2" '{$query, $variables}' |
    curl --silent --show-error --retry 5 --data-binary @- \
      -H 'Content-Type: application/json' -H "Accept: ${accept:-application/graphql-response+json}" \
      ${API_TOKEN:+-H "Authorization: Bearer $API_TOKEN"} "${@:3}" "$url"
}

# data: reads a response, and prints its data. Errors are printed with their codes, and end the script.
data() {
  jq -e 'if .errors then (.errors[] | "\(.extensions.code): \(.message)\n" | halt_error(1)) else .data end'
}

feed() {
  local after=null
  for ((page = 0; page < ${2:-1}; page++)); do
    local result
    result=$(send 'query ($user: ID!, $after: String) {
      homeFeed(userId: $user, first: 10, after: $after) {
        nodes { id post { id text likeCount author { id name } } }
        pageInfo { hasNextPage endCursor }
      }
    }' "$(jq -n --arg user "$1" --argjson after "$after" '{$user, $after}')" | data)
    # An entry, or a post that was deleted, is null.
    jq -r '.homeFeed.nodes[] | .post // empty | "\(.author.name // "?"): \(.text) (\(.likeCount))"' <<<"$result"
    [ "$(jq .homeFeed.pageInfo.hasNextPage <<<"$result")" = true ] || return 0
    after=$(jq .homeFeed.pageInfo.endCursor <<<"$result")
  done
}

post() {
  local key
  key=$(cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen)
  # With the same key the gateway executes the mutation once, and repeats its response.
  send 'mutation ($text: String!) { createPost(input: {text: $text}) { id postId } }' \
    "$(jq -n --arg text "$1" '{$text}')" -H "Idempotency-Key: $key" --retry-all-errors | data | jq -r .createPost.postId
}

follow() {
  # Server-sent events: `id:` is the position. Send it as Last-Event-ID to resume.
  accept=text/event-stream send 'subscription ($post: ID!) { postEngagement(postId: $post) { id likeCount commentCount } }' \
    "$(jq -n --arg post "$1" '{post: $post}')" --no-buffer |
    sed -u -n 's/^data: *\({.*\)/\1/p' |
    jq -r --unbuffered '.data.postEngagement // empty | "\(.likeCount) likes, \(.commentCount) comments"'
}

case ${1:-} in
  feed | post | follow) "$@" ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
