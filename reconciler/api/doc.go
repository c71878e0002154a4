// Package api serves a [service.Service] over HTTP, as JSON under /v1, described by OpenAPI 3.1 at
// /openapi.json. /livez reports that the process runs, and /readyz that it can work.
//
// Every request under /v1 needs a bearer token ("Authorization: Bearer <token>"). Only POST
// /v1/conditions accepts a Standard Webhooks signature instead. A token may be limited to
// environments. Errors are RFC 9457 problems with the code, reason and fields of [sandbox.Error].
//
// # The packages
//
//	api        authenticates requests, limits and logs them; conditions, probes, metrics and the gate of pages
//	routes     the operations, a file for each subject
//	document   registers operations, and describes them with OpenAPI
//	rights     what a token may touch and do
//	exchange   one request and its response
//	bodies, stream, problem, ratelimit
//	           reading and writing bodies; responses of lines; errors; rate limits
//
// # Status of each code
//
//	invalid                 422   not_found         404   unauthenticated  401
//	conflict                409   lease_ended       409   forbidden        403
//	environment_ended       409   budget_exceeded   402   unavailable      503, Retry-After
//	event_sequence_expired  410   unknown_outcome   502   capacity_exceeded 429, Retry-After
//	timeout                 504   failed            500   internal         500
//	output_expired          410
//
// HTTP itself adds 400 (no body), 404 (unknown path), 405, 408 (body too slow), 411 (raw file
// without length), 413 (body too large) and 415 (content type).
//
// # The thirteen errors of the first design
//
//	its error                code and reason here                                    status  was
//	NOT_FOUND                not_found, sandbox_not_found                            404     404
//	CREATION_FAILED          failed, sandbox_creation_failed                         500     500
//	START_FAILED             failed, sandbox_start_failed                            500     500
//	STOP_FAILED              failed, sandbox_stop_failed                             500     500
//	REMOVAL_FAILED           failed, sandbox_removal_failed                          500     500
//	EXEC_FAILED              failed, sandbox_exec_failed                             500     500
//	INVALID_STATE            conflict, sandbox_invalid_state                         409     400
//	FILE_NOT_FOUND           not_found, sandbox_file_not_found                       404     404
//	WRITE_FAILED             failed, sandbox_write_failed                            500     500
//	COPY_FAILED              failed, sandbox_copy_failed                             500     500
//	STATS_FAILED             failed, sandbox_stats_failed                            500     500
//	RESOURCE_LIMIT_EXCEEDED  capacity_exceeded, sandbox_resource_limit_exceeded      429     429
//	TIMEOUT                  timeout, sandbox_timeout                                504     408
//
// Two statuses differ on purpose. A state that forbids a request is a conflict, not a malformed
// request. 408 would blame the client for a slow server.
package api
