"""Receives spans over OTLP/gRPC, and prints the port and then a line of JSON for each span."""
import json
import sys
from concurrent import futures

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        metadata = dict(context.invocation_metadata())
        for resource_spans in request.resource_spans:
            resource = {pair.key: pair.value.string_value for pair in resource_spans.resource.attributes}
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    print(json.dumps({
                        "name": span.name,
                        "trace": span.trace_id.hex(),
                        "service": resource["service.name"],
                        "authorization": metadata.get("authorization"),
                    }), flush=True)
        return trace_service_pb2.ExportTraceServiceResponse()


server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Receiver(), server)
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
sys.stdin.read()
