package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/conchsh/conch"
)

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version [--json]",
		GroupID: groupDaemon,
		Short:   "Print the version",
		Args:    words(),
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return printJSON(os.Stdout, struct {
					Version  string `json:"version"`
					Protocol int    `json:"protocol"`
					Go       string `json:"go"`
					Platform string `json:"platform"`
				}{version, conch.ProtocolVersion, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Printf("conch %s (protocol %d, %s, %s/%s)\n", version, conch.ProtocolVersion,
				runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return written(err)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON value")
	return cmd
}
