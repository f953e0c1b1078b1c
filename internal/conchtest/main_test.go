package conchtest

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv("CONCHTEST_CLAIMER") != "" {
		claimer()
		return
	}
	Main(m)
}
