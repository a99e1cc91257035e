package commands_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

func jsonOf(s api.Status) ([]byte, error) { return json.Marshal(s) }

func certificatePEM(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}
