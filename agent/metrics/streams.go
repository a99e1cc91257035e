package metrics

// WebSocketStream counts a stream over WebSocket. Set the field WebSocketStream of
// kubeletapi.Config to this method. The subresource is exec, attach or portforward.
func (m *Metrics) WebSocketStream(subresource string) { m.streams.WithLabelValues(subresource).Inc() }
