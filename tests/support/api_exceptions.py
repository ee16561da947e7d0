"""Exceptions of the rules in tests/api/test_api_conventions.py: coordinates by rule, with their reasons."""

UNORDERED = "The index has no sort key, so its order means nothing."
FORWARD_ONLY = "An index of words has no previous page. Relay's specification accepts forward paging alone."
ONCE = "A caller can have one only, so its key is known before."
CACHED = "The state comes from a cache, and is built from reads of other tables."
DOCUMENTED = "The document of the table names the attribute `logType`."
SECRET = "The key of a device is its push token, which is no part of its global id."
SEARCH = "The index of the search is written after the posts and users, so that no read of it shows the newest state."

EXCEPTIONS: dict[str, dict[str, str]] = {
    "the_own_key_of_an_object_is_the_argument_id": {
        "Query.device": "A device is looked up by its user: its own key contains a push token, which is secret.",
    },
    "ids_of_mutations_are_keys_of_the_object": {
        "Mutation.deleteDevice(deviceToken:)": SECRET,
        "Mutation.registerDevice(deviceToken:)": SECRET,
        "Mutation.updateDevice(deviceToken:)": SECRET,
        "Mutation.mergePersons(fromId:)": "Both are keys: of the person that is deleted, and of the one that remains.",
        "Mutation.mergePersons(intoId:)": "Both are keys: of the person that is deleted, and of the one that remains.",
    },
    "kinds_are_enums_and_types_are_words": {
        "Query.requestLogs(type:)": DOCUMENTED,
        "RequestLog.logType": DOCUMENTED,
    },
    "descriptions_of_ids_name_the_global_id": {
        "Mutation.deleteDevice(deviceToken:)": SECRET,
        "Mutation.registerDevice(deviceToken:)": SECRET,
        "Mutation.updateDevice(deviceToken:)": SECRET,
    },
    "connections_page_in_both_directions": {
        "Query.searchPosts": FORWARD_ONLY,
        "Query.searchUsers": FORWARD_ONLY,
    },
    "new_objects_accept_an_id_of_the_client": {
        "Mutation.createPhotoUser": ONCE,
        "Mutation.createUser": ONCE,
        "Mutation.createWatch": ONCE,
    },
    "lists_in_an_order_accept_the_other_order": {
        "Me.liveActivities": UNORDERED,
        "Query.liveActivities": UNORDERED,
    },
    "reads_of_base_tables_accept_consistent": {
        "Query.displayState": CACHED,
        "Query.searchPosts": SEARCH,
        "Query.searchUsers": SEARCH,
    },
}
