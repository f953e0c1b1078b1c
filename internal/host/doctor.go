package host

import (
	"context"

	"github.com/conchsh/conch"
	"github.com/conchsh/conch/internal/doctor"
)

// Report is the doctor's answer.
type Report = conch.Checkup

// Doctor looks at everything conch stands on; deep, at every byte of every tape.
func (h *Host) Doctor(ctx context.Context, deep bool) Report {
	checks := doctor.Examine(ctx, doctor.Options{Home: h.Home, Version: h.Version, Socket: h.Socket, Exe: h.Store.Exe(), Deep: deep})
	checks = append(checks, h.checkAgents(), h.checkMail(ctx), h.checkPost(ctx))
	if why := h.Gate.Closed(); why != "" {
		checks = append(checks, doctor.Bad("network", "conch token new NAME --scope SCOPE makes one, and opens the port", "%s", why))
	}
	return Report{Checks: checks}
}
