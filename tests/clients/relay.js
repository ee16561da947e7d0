// relay-compiler over the committed schema. Says the names of what it compiled.

import { given, say } from "./conversation.js";
import { compileOperations } from "./relay-compiler.js";

say(await compileOperations({ ...given, language: "typescript" }));
