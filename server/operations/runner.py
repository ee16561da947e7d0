"""From what a client asks to its answer, the same for every transport: known, prepared, afforded, executed, told of."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine
from functools import partial
from secrets import token_bytes
from typing import Any

from graphql.language import OperationType

from datastore.change_streams.replay.signed_resume_ids import ResumeIds
from datastore.errors import BadUserInput, DomainError, Internal, Throttled, Timeout, Unavailable
from datastore.model.ids import IdSource
from datastore.session.metering import Meter
from server.admission.budgets import CallerBudgets
from server.admission.callers import Caller, payer
from server.admission.deadlines import Deadlines
from server.admission.fairness import TimeSlices
from server.admission.load_shedding import LoadShedder
from server.admission.quotas import KeyedQuota
from server.documents.cost.analysis import TooCostly
from server.documents.document_cache import Document, DocumentRejected, Documents, KnownText, PreparedOperation
from server.documents.persisted.registry import DocumentRegistry
from server.documents.request import Operation, Stage
from server.documents.variables import check_variables
from server.operations.billing import Billing, kept_of, not_admitted, owed
from server.operations.context import OpenContext
from server.operations.execution import executed
from server.operations.explain import Explanations
from server.operations.idempotency import Idempotency
from server.operations.outcome import MAX_ANSWER_CHARACTERS, AnswerTooLarge, Outcome, failure, is_too_large
from server.operations.report import Observe, Report, Tracing, report_on
from server.operations.request import Request, Transport, answer_units, least_units
from server.subscriptions.manager import SubscriptionManager
from server.subscriptions.subscriber import Listener, PullPosition, SubscriptionHandle

DEADLINE = 30.0
CANCELLED = "CANCELLED"
# An answer with more values takes long enough for other work to get its turn in between.
UNSLICED_VALUES = 250
# The characters of an answer with more values are counted before it is encoded. Few values are rarely that long, so the
# others are counted only where the encoded answer has more bytes than an answer may have characters.
UNMEASURED_VALUES = MAX_ANSWER_CHARACTERS // 2_000

Answer = Callable[[Request, Report], Coroutine[Any, Any, Outcome]]


class Runner:
    """Runs operations, each within `deadline` seconds; a subscription runs as long as it is wanted.

    `load` limits the operations in hand, and `subscriptions` the running subscriptions. Without `resume_ids`
    subscriptions resume at this process only.
    """

    def __init__(
        self,
        documents: Documents,
        open_context: OpenContext,
        *,
        deadline: float = DEADLINE,
        registry: DocumentRegistry | None = None,
        budgets: CallerBudgets | None = None,
        load: LoadShedder | None = None,
        subscriptions: KeyedQuota | None = None,
        waiting_bytes: int = 0,
        resume_ids: ResumeIds | None = None,
        once: Idempotency | None = None,
        observers: Collection[Observe] = (),
        tracing: Tracing | None = None,
        explanations: Explanations = Explanations(),  # noqa: B008 - frozen
    ) -> None:
        self._documents = documents
        self._deadlines = Deadlines(deadline)
        self._registry = registry
        self._budgets = budgets
        self._load = load or LoadShedder(0)
        self._once = once
        self._explanations = explanations
        self.accounts = Billing(
            documents,
            open_context,
            budgets=budgets,
            observers=observers,
            tracing=tracing,
            explanations=explanations,
        )
        places = subscriptions or KeyedQuota("subscriptions", 0, 0)
        self._slices = TimeSlices()
        self._streams = SubscriptionManager(
            documents,
            self.accounts,
            self._load,
            places,
            self._deadlines,
            self._slices,
            resume_ids or ResumeIds(token_bytes()),
            waiting_bytes,
        )

    def check_load(self) -> None:
        """Raises `Unavailable` when an operation that came now would not be executed: it need not be read."""
        self._load.check()

    async def prepare(self, asked: Operation, caller: Caller, transport: Transport) -> Request | Outcome:
        """The operation made ready, or why it will not be executed."""
        began = time.perf_counter()
        document: Document | None = None
        operation: PreparedOperation | None = None
        estimate = 0.0
        try:
            if self._budgets is not None:
                self._budgets.check(caller)
            if asked.explain:
                self._explanations.check(caller)
            registry = self._registry
            plain = None if registry is None else registry.plain(asked)
            known = plain or await self._text(asked, caller)
            document = self._documents.prepare(known.text, trusted=known.trusted)
            self._documents.allow(document, caller.identity)
            if registry is not None and plain is None:
                await registry.accepted(asked, document)
            operation = document.operation(asked.name)
            variables = asked.variables or {}
            values = check_variables(variables) if variables else 0
            if (loading := operation.loading(variables)) is not None:
                await loading
            estimate, answered = self._documents.estimate(operation, variables)
            least = least_units("" if known.trusted else known.text, values, document.introspected, asked.size)
            if operation.kind is OperationType.SUBSCRIPTION:
                asked.keep_only(operation.variable_names)
            return Request(asked, caller, transport, operation, estimate, least, answered)
        except DocumentRejected as refusal:
            outcome = Outcome(errors=refusal.errors, stage=refusal.stage)
        except (Throttled, Unavailable) as error:
            outcome = not_admitted(error)
        except DomainError as error:
            if isinstance(error, TooCostly):
                estimate = error.estimate
            outcome = failure(error, Stage.SELECTION)
        report = self.accounts.begin(Report(asked, caller, transport, document, operation, estimate))
        if outcome.stage is not Stage.ADMISSION and self._budgets is not None:
            outcome.allowance = await self._budgets.settle(caller, least_units(asked.query or "", size=asked.size))
        report.add(outcome)
        self.accounts.tell(report, began)
        return outcome

    async def _text(self, asked: Operation, caller: Caller) -> KnownText:
        if self._registry is not None:
            return await self._registry.text_of(asked, caller)
        if asked.query is None:
            raise BadUserInput("Documents are not known by an id here: send the query.")
        return KnownText(asked.query)

    def run(self, request: Request) -> Coroutine[Any, Any, Outcome]:
        """Execute a query or a mutation. A mutation with an Idempotency-Key is executed once, and to its end."""
        if request.asked.idempotency_key is None or self._once is None or request.kind is not OperationType.MUTATION:
            return self._reported(request, self._timed)
        return self._once.lasting(self._reported(request, partial(self._answered_once, self._once)))

    async def _reported(self, request: Request, answer: Answer) -> Outcome:
        report = self.accounts.begin(report_on(request))
        began = time.perf_counter()
        try:
            try:
                outcome = await answer(request, report)
            except DomainError as error:
                outcome = not_admitted(error)
            if request.asked.explain and outcome.replayed is None:
                self.accounts.explain(request, outcome, report.done)
            report.add(outcome)
            return outcome
        except asyncio.CancelledError:
            report.note(CANCELLED)
            raise
        except Exception:
            report.note(Internal.code)
            raise
        finally:
            self.accounts.tell(report, began)

    def _timed(self, request: Request, report: Report) -> Coroutine[Any, Any, Outcome]:
        return self._in_time(request, report, self._paid_and_executed)

    def _paid_and_executed(self, request: Request, report: Report) -> Coroutine[Any, Any, Outcome]:
        return self._paid(self._executed, request, report)

    async def _answered_once(self, once: Idempotency, request: Request, report: Report) -> Outcome:
        """Only what is executed takes a turn: twins wait without one. What they have not cost is given back."""

        def executed(origin: IdSource) -> Coroutine[Any, Any, Outcome]:
            return self._in_time(request, report, partial(self._executed, origin=origin))

        async def answer(request: Request, report: Report) -> Outcome:
            meter = Meter()
            meter.detailed = request.asked.explain
            try:
                return await once.answered(request, executed, meter)
            finally:
                made = report.latest
                self.accounts.measure(report, meter)
                report.latest = [*made, *report.latest]

        return await self._paid(answer, request, report)

    async def _in_time(self, request: Request, report: Report, work: Answer) -> Outcome:
        load, caller = self._load, request.caller.payer or payer(request.caller)
        try:
            with self._deadlines.limited():
                if not load.take(caller):
                    await load.wait(caller)
                try:
                    return await work(request, report)
                finally:
                    load.leave(caller)
        except TimeoutError:
            late = Timeout(f"The operation did not finish within {self._deadlines.seconds:g} seconds and was stopped.")
            outcome = failure(late)
            if _wrote(report):
                outcome.doubt()
            return outcome

    async def _paid(self, work: Answer, request: Request, report: Report) -> Outcome:
        """What `work` answers, its estimate charged before and what it really cost afterwards, however it ends."""
        accounts = self.accounts
        at_once = accounts.pays_at_once
        allowance = accounts.charge_now(request) if at_once else await accounts.charge(request)
        least = request.least
        try:
            outcome = await work(request, report)
            least = max(least, answer_units(outcome))
        finally:
            units = owed(report, report.price, request.charged, max(least, kept_of(request, report)))
            settled = accounts.settle_now(request, units) if at_once else await accounts.settle(request, units)
        outcome.allowance = settled or allowance
        return outcome

    async def _executed(self, request: Request, report: Report, origin: IdSource | None = None) -> Outcome:
        context = self.accounts.opened(request)
        if origin is not None:
            context.use_id_source(origin)
        meter = context.meter
        try:
            if request.values <= UNSLICED_VALUES:
                outcome = await executed(self._documents, request, context)
            else:
                await self._slices.turn()
                outcome = await executed(self._documents, request, context, self._slices)
        finally:
            context.close()
            self.accounts.measure(report, meter)
        wrote = _wrote(report)
        stopped = meter.stop_error
        if request.values > UNMEASURED_VALUES and is_too_large(outcome.data):
            outcome = failure(AnswerTooLarge())
        if stopped is not None and (request.kind is OperationType.QUERY or not wrote):
            # Which fields had what they needed before is chance: nobody shall take their values for the answer.
            outcome = failure(stopped)
        if wrote:
            outcome.doubt()
        if len(outcome.body) > MAX_ANSWER_CHARACTERS and is_too_large(outcome.data):
            outcome = failure(AnswerTooLarge())
            if wrote:
                outcome.doubt()
        return outcome

    def stream(self, request: Request, whereabouts: PullPosition | None = None) -> AsyncGenerator[Outcome, None]:
        """The answers of a subscription. The caller closes the generator, which releases the event source."""
        return self._streams.stream(request, whereabouts or PullPosition())

    async def aclose(self) -> None:
        """Wait until the subscriptions that have ended are paid for, and told of."""
        await self._streams.aclose()

    async def follow(self, request: Request, listener: Listener) -> SubscriptionHandle:
        """Have the answers of a subscription delivered, as they come, until it is over or is stopped."""
        return await self._streams.follow(request, listener)


def _wrote(report: Report) -> bool:
    """Whether the latest calls changed something, or may have."""
    for call in report.latest:  # noqa: SIM110 - a generator for `any` takes longer
        if call.may_have_written:
            return True
    return False
